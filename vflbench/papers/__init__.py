"""The papers' figures and tables: what runs they need (`definition`, `jobs`), what was measured (`measured`), claims,
pages."""
