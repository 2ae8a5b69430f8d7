package main

import "flag"

type filesFlags struct{}

func (*filesFlags) register(*flag.FlagSet) {}
func (*filesFlags) wanted() bool           { return false }
func runFiles(filesFlags, settings) error  { return nil }
