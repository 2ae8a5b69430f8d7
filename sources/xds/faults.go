package xds

import (
	"errors"
	"fmt"

	"tributary/resource"
)

// maxFaults is how many reasons are given for what is wrong with one response. People need no more, and a server that
// sends nothing but what is wrong, which takes it two bytes each, must not fill the memory with reasons.
const maxFaults = 20

// faults are what is wrong with a response: the first of it, and how much more there is.
type faults struct {
	first []error
	more  int
}

// add adds what is made only if it is to be kept.
func (f *faults) add(fault func() error) {
	if len(f.first) == maxFaults {
		f.more++
		return
	}
	f.first = append(f.first, fault())
}

// addAll adds what a sink refused.
func (f *faults) addAll(refused error) {
	for _, e := range resource.ErrorsIn(refused) {
		f.add(func() error { return e })
	}
}

// err returns all of it as one error, or nil if there is nothing.
func (f *faults) err() error {
	if f.more == 0 {
		return errors.Join(f.first...)
	}
	return errors.Join(errors.Join(f.first...), fmt.Errorf("and %d more", f.more))
}
