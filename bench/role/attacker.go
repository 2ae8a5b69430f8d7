package role

import (
	"errors"
	"syscall"

	"tributary/bench/attack"
)

// Attacker does harm to a server. Its exported methods are called by net/rpc.
type Attacker struct{ end func() attack.Counts }

// AttackArgs say which attack, and on what.
type AttackArgs struct {
	Name   string
	Target attack.Target
}

// Begin begins an attack. The process gives way to others for the processor, as if it were on another machine.
func (a *Attacker) Begin(args AttackArgs, _ *struct{}) (err error) {
	if a.end != nil {
		return errors.New("there is an attack already")
	}
	_ = syscall.Setpriority(syscall.PRIO_PROCESS, 0, 19) // of this thread, from which the others are made
	a.end, err = attack.Begin(args.Name, args.Target)
	return err
}

// End ends the attack and says what became of it.
func (a *Attacker) End(_ struct{}, counts *attack.Counts) error {
	if a.end != nil {
		*counts = a.end()
		a.end = nil
	}
	return nil
}
