"""The pages: what each one shows. How they look is in ``report/templates``; each function returns a page as text."""
