package adsc

import "maps"

// ResourceState is the condition of a resource that is asked for by name.
type ResourceState int

// The states.
const (
	Requested ResourceState = iota // no answer yet
	Held                           // the handler took it
	Rejected                       // the handler rejected what came last
	Absent                         // it does not exist
)

// String returns the state in lower case.
func (s ResourceState) String() string {
	switch s {
	case Requested:
		return "requested"
	case Held:
		return "held"
	case Rejected:
		return "rejected"
	case Absent:
		return "absent"
	}
	return "unknown"
}

// ResourceStatus is what is known of a resource that is asked for by name.
type ResourceStatus struct {
	Name  string
	State ResourceState
	// Version is that which the handler took last: the resource's own in delta mode, else that of the response. It is empty
	// if there is none, also where the server gives none.
	Version string
	Err     error // why what came last was rejected; nil unless State is Rejected
}

// resources are the conditions of those that are asked for by name.
type resources map[string]*ResourceStatus

// want has the resources be those called names.
func (rs resources) want(names []string) {
	wanted := wants{names: names}
	maps.DeleteFunc(rs, func(name string, _ *ResourceStatus) bool { return !wanted.has(name) })
	for _, name := range names {
		if rs[name] == nil {
			rs[name] = &ResourceStatus{Name: name}
		}
	}
}

// open returns the names of those that have no answer yet.
func (rs resources) open() (names []string) {
	for name, status := range rs {
		if status.State == Requested {
			names = append(names, name)
		}
	}
	return names
}

// note takes note of a response and of what the handler did not take of it, and returns the names of those that turned out
// not to exist. first says that it begins a complete set.
func (rs resources) note(r *Response, first bool, nameOf func(Resource) string, rejected rejection) (gone []string) {
	if len(rs) == 0 {
		return nil
	}
	if first && r.Delta && !r.Cached {
		for _, status := range rs { // a server tells what there is, and what there is not
			status.State, status.Err = Requested, nil
		}
	}
	here := make(map[string]bool, len(r.Resources))
	for _, res := range r.Resources {
		name := nameOf(res)
		here[name] = true
		status := rs[name]
		switch {
		case status == nil:
		case rejected.of(name):
			status.State, status.Err = Rejected, rejected.err
		case r.Delta:
			*status = ResourceStatus{Name: name, State: Held, Version: res.Version}
		default:
			*status = ResourceStatus{Name: name, State: Held, Version: r.Version}
		}
	}
	if rejected.whole {
		return nil
	}
	if r.Delta {
		for _, name := range r.Removed {
			if status := rs[name]; status != nil {
				gone = rs.lose(gone, status)
			}
		}
		return gone
	}
	if !r.Complete {
		return nil
	}
	for name, status := range rs {
		// What was never received may not have been asked for when the server wrote this.
		if !here[name] && status.State != Requested {
			gone = rs.lose(gone, status)
		}
	}
	return gone
}

// lose notes that a resource does not exist, and adds it to gone if that is new.
func (resources) lose(gone []string, status *ResourceStatus) []string {
	if status.State == Absent {
		return gone
	}
	*status = ResourceStatus{Name: status.Name, State: Absent}
	return append(gone, status.Name)
}

// expire notes that those of names that still have no answer do not exist, and returns them.
func (rs resources) expire(names []string) (gone []string) {
	for _, name := range names {
		if status := rs[name]; status != nil && status.State == Requested {
			gone = rs.lose(gone, status)
		}
	}
	return gone
}
