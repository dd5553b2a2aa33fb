"""Pictures of runs (`curves`) in one fixed style (`style`). Never imports torch."""
