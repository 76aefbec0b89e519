"""`python -m pgtop_tune`."""

try:
    from pgtop_tune.cli.app import main

    main()
except KeyboardInterrupt:
    # Stopped while it begins, before it handles signals: nothing has been done yet.
    raise SystemExit(130) from None
