"""The past without a cluster: the web service's page and APIs over the archives in storage. It writes nothing there."""
