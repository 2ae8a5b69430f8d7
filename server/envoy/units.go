package envoy

import "sync"

// unit is all that a translation of a host depends on.
type unit struct {
	from     string // of the view
	role     role
	captures bool
}

// units is what is known already of what profiles are told of hosts. It is safe for concurrent use.
type units struct {
	mu     sync.Mutex
	byHost map[string]map[unit]*told
}

// get returns the translation of a unit, which translate makes if it is not known.
func (u *units) get(host string, of unit, translate func() *told) *told {
	if t := u.known(host, of); t != nil {
		return t
	}
	return u.keep(host, of, translate())
}

func (u *units) known(host string, of unit) *told {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.byHost[host][of]
}

// keep notes a translation and returns it, or the one that somebody noted meanwhile, so that all share one.
func (u *units) keep(host string, of unit, t *told) *told {
	u.mu.Lock()
	defer u.mu.Unlock()
	if known := u.byHost[host][of]; known != nil {
		return known
	}
	if u.byHost == nil {
		u.byHost = make(map[string]map[unit]*told)
	}
	if u.byHost[host] == nil {
		u.byHost[host] = make(map[unit]*told)
	}
	u.byHost[host][of] = t
	return t
}

// forget forgets what was translated of hosts that have changed.
func (u *units) forget(hosts map[string]struct{}) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for host := range hosts {
		delete(u.byHost, host)
	}
}
