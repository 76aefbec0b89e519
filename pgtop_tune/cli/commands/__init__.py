"""The commands there are; one module per command, imported when it runs."""

from __future__ import annotations

from typing import Final

DEFAULT_COMMAND: Final = "top"
SHOWS: Final = "watch.screen.show_server"
COMMANDS: Final = (
    (DEFAULT_COMMAND, "watch.TopRequest", SHOWS),
    ("demo", "watch.DemoRequest", "watch.demo_server.run_demo"),
    ("record", "recordings.RecordRequest", "recordings.record"),
    ("replay", "watch.ReplayRequest", "watch.screen.replay_recording"),
    ("show", "show.ShowRequest", "show.moments.show_rows"),
    ("mcp", "agents.McpRequest", "agents.server.run_server"),
    ("parameters", "parameters.ParametersRequest", "parameters.advice.say_parameters"),
    ("advise", "parameters.AdviseRequest", "parameters.advice.run_advise"),
    ("set", "parameters.SetRequest", "parameters.set_reset.set_values"),
    ("reset", "parameters.ResetRequest", "parameters.set_reset.reset_values"),
    ("revert", "parameters.RevertRequest", "parameters.reverts.run_revert"),
    ("ab", "ab.AbRequest", "ab.experiment.run_ab"),
    ("tune", "tune.TuneRequest", "tune.search.run_tune"),
    ("diff", "parameters.DiffRequest", "parameters.differences.say_differences"),
    ("check", "check.CheckRequest", "check.report.run_check"),
    ("compare", "recordings.CompareRequest", "recordings.comparison.compare_files"),
    ("report", "recordings.ReportRequest", "recordings.comparison.write_report"),
    ("export", "recordings.ExportRequest", "recordings.export.export_recording"),
    ("bench init", "bench.InitRequest", "bench.data_sets.make_data_set"),
    ("bench run", "bench.RunRequest", "bench.runs.run_loads"),
    ("bench list", "bench.ProfilesRequest", "bench.profiles.say_profiles"),
    ("bench show", "bench.ProfileRequest", "bench.profiles.say_profile"),
    ("baseline save", "recordings.SaveRequest", "recordings.comparison.save_baseline"),
    ("baseline list", "recordings.BaselinesRequest", "recordings.comparison.say_baselines"),
    ("baseline check", "recordings.BaselineRequest", "recordings.comparison.check_baseline"),
    ("experiment noise", "experiment.NoiseRequest", "experiment.noise_floor.measure_noise"),
    ("experiment check", "experiment.PlanCheckRequest", "experiment.plans.check_plan"),
    ("experiment plan", "experiment.PlanReviewRequest", "experiment.plans.review_plan"),
    ("experiment run", "experiment.PlanRunRequest", "experiment.plan_runs.run_plan"),
    ("experiment resume", "experiment.PlanResumeRequest", "experiment.plan_runs.resume_plan"),
    ("experiment status", "experiment.StatusRequest", "experiment.results.show_status"),
    ("experiment report", "experiment.ExperimentReportRequest", "experiment.results.write_report"),
    ("experiment attach", "experiment.AttachRequest", "experiment.results.attach"),
    ("experiment stop", "experiment.StopRequest", "experiment.results.stop"),
    ("help", "guide.HelpRequest", "guide.pages.say_page"),
)
"""Words of a command; below this package, the struct of its options and help, and the function that takes it."""
GROUPS: Final = {
    "bench": (
        "Prepare and run pgbench loads.",
        "Examples:  pgtop-tune bench init -s 100 -d bench  ·  pgtop-tune bench run -c 8 -T 60 -d bench  ·  "
        "pgtop-tune bench list  ·  pgtop-tune bench show ticket-read",
    ),
    "baseline": (
        "Save runs under a name, and compare later runs with them.",
        "Examples:  pgtop-tune baseline save go-live run.jsonl.gz  ·  pgtop-tune baseline check go-live -d bench  ·  "
        "pgtop-tune baseline list",
    ),
    "experiment": (
        "Measure the noise of this machine; run plans of configurations, loads, sizes and endpoints.",
        "Examples:  pgtop-tune experiment noise --profile tpcb-like -c 16 --for 10m -d bench  ·  "
        "pgtop-tune experiment check P1 -d bench  ·  pgtop-tune experiment run P1 --scale 5 --time 10s  ·  "
        "pgtop-tune experiment status  ·  pgtop-tune experiment resume P1  ·  "
        "pgtop-tune experiment report P1 -o p1.html",
    ),
}
"""Help and examples of the commands that have commands of their own."""
NAMES: Final = frozenset(call.split()[0] for call, _, _ in COMMANDS)
"""First words of all commands."""
