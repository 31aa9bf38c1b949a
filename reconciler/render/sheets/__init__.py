"""What is shown of one content each, as the sheet that the formats beside text and JSON are made from."""
