"""The one vertical model: scores = top(aggregate_k bottom_k(x_k)), which every family of methods trains."""

SHARES = ("linear", "mlp")  # the sum over the parties is the scores: there is no top
COMPOSED = "vertical"
IMAGES = ("mvcnn", "resnet", "resnet_bn")
