"""Constants of softmax regression that `explain` prints too; importing them compiles nothing."""

STEPS = 5  # quasi-Newton steps in a round
