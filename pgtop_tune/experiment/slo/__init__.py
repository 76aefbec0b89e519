"""The highest rate at which a load keeps an objective: `bench run --slo`."""
