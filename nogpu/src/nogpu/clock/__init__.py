"""The clock: records of a launch, warp by warp, and a model of the launch's time on a chip."""
