package role

import (
	"errors"
	"syscall"

	"tributary/bench/attack"
)

// Attacker does harm to a server. Its exported methods are called by net/rpc.
type Attacker struct{ end func() attack.Counts }

// AttackArgs are the attack and its target.
type AttackArgs struct {
	Name   string
	Target attack.Target
}

// Begin begins an attack. The process gives way to others for the processor, as if it were on another machine.
func (a *Attacker) Begin(args AttackArgs, _ *struct{}) (err error) {
	if a.end != nil {
		return errors.New("there is an attack already")
	}
	_ = syscall.Setpriority(syscall.PRIO_PROCESS, 0, 19) // the priority of this thread, which the others inherit
	a.end, err = attack.Begin(args.Name, args.Target)
	return err
}

// End ends the attack and returns its counts.
func (a *Attacker) End(_ struct{}, counts *attack.Counts) error {
	if a.end != nil {
		*counts = a.end()
		a.end = nil
	}
	return nil
}
