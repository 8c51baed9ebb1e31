"""`wakeful chaos`: crash points, pairs of them, random programs and a storm, within a time and from one seed."""
