"""Facts about models that cards of methods need."""

MOST_BINS = 256  # of a column, as boosted trees see it: a bin number is a byte before it is packed
SHARES = ("linear", "mlp")  # the sum over the parties is the scores: there is no top
COMPOSED = "vertical"
IMAGES = ("mvcnn", "resnet", "resnet_bn")
