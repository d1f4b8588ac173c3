"""What happened, folded again from recorded inboxes. Nothing here sends or performs anything."""
