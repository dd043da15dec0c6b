"""Settings that are tuned while a run makes progress: `controller` decides, `progress` compares windows.

A window is some work with one set of settings, after which the objective is known. All windows belong to the run:
nothing that is computed is thrown away, unless it diverged. The rules:

- **Trials.** One knob moves to another setting for a window. If progress per second is better the setting is kept, if
  it is worse it goes back; while neither is probable enough the trial is repeated, up to `repeats` times, and then the
  more probable answer counts. Seconds and progress are judged apart (`progress.compare`).
- **Waiting.** Where the workers' waiting time is known it says what staleness can gain. Below `idle` more staleness is
  not tried. Above, the first step is as long as the share of waiting, and it is tried after the first window, because
  seconds alone tell.
- **Direction.** The first trial of a knob loosens it: more staleness, a larger number. Steps grow with successes and
  shrink with failures (`KnobState`). A staleness under which windows are known to take much longer is not tried, nor is
  any below it.
- **Rest.** A knob that failed in both directions rests for `rest` windows, twice as long after each further failure,
  and `longest` at most. A move back to settings that were kept before counts as a failure, so a run whose progress
  alternates settles.
- **Budget.** Trials take at most a `share` of the windows, besides one for each rung of the ladders and four for each
  knob.
- **Flat runs.** When a run stops to make the progress that it made with the same settings (`PlateauTest`), knobs are
  tried downwards, and the lower setting is kept unless it is worse: a run near its end gains from fresh values and
  small steps. Large steps early and small ones late are faster than any one in between.
- **Change.** If progress at the kept settings falls to less than `changed` of what it was, for two windows, rests end,
  and earlier windows are forgotten.
- **Divergence.** A setting after which the objective is not finite, or larger than at the start, is never tried again,
  nor is any beyond it. `undo` then says that the states of the window should be restored.
"""
