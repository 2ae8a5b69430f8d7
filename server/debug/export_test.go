package debug

// DumpParts is the dump that istioctl gets.
var DumpParts = dumpParts
