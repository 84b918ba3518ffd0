"""Judgement: observations in, verdicts out. Nothing here touches a machine."""
