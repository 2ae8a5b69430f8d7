package adsc

import "maps"

// ResourceState is the condition of a resource that is asked for by name.
type ResourceState int

// The states.
const (
	Requested ResourceState = iota // no answer yet
	Held                           // the handler took it, or the caller had it already
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
type resources map[string]*named

// named is a resource that is asked for by name. One that was dropped and is asked for again is another.
type named struct {
	ResourceStatus
	reported bool // as absent, and it has not been there since
}

// want has the resources be those called names. The caller has some already, of these versions.
func (rs resources) want(names []string, versions map[string]string) {
	wanted := wants{names: names}
	maps.DeleteFunc(rs, func(name string, _ *named) bool { return !wanted.has(name) })
	for _, name := range names {
		if rs[name] != nil {
			continue
		}
		rs[name] = &named{ResourceStatus: ResourceStatus{Name: name}}
		if version := versions[name]; version != "" {
			rs[name].hold(version)
		}
	}
}

// open returns those that have no answer yet.
func (rs resources) open() (list []*named) {
	for _, res := range rs {
		if res.State == Requested {
			list = append(list, res)
		}
	}
	return list
}

// called returns those called names.
func (rs resources) called(names []string) []*named {
	list := make([]*named, 0, len(names))
	for _, name := range names {
		if res := rs[name]; res != nil {
			list = append(list, res)
		}
	}
	return list
}

// note takes note of a response whose resources have these names, and of what the handler did not take of it, and returns the
// names of those that turned out not to exist. first says that it begins a complete set.
func (rs resources) note(r *Response, first bool, names []string, rejected rejection) (gone []string) {
	if len(rs) == 0 {
		return nil
	}
	if first && r.Delta {
		for _, res := range rs { // a server tells what there is, and what there is not
			res.State, res.Err = Requested, nil
		}
	}
	here := make(map[string]bool, len(r.Resources))
	for i, name := range names {
		here[name] = true
		res := rs[name]
		switch {
		case res == nil:
		case rejected.of(name):
			res.State, res.Err, res.reported = Rejected, rejected.err, false
		case r.Delta:
			res.hold(r.Resources[i].Version)
		default:
			res.hold(r.Version)
		}
	}
	if rejected.whole {
		return nil
	}
	if r.Delta {
		for _, name := range r.Removed {
			if res := rs[name]; res != nil {
				gone = res.lose(gone)
			}
		}
		return gone
	}
	if !r.Complete {
		return nil
	}
	for name, res := range rs {
		// What was never received may not have been asked for when the server wrote this.
		if !here[name] && res.State != Requested {
			gone = res.lose(gone)
		}
	}
	return gone
}

// hold notes that the handler took a version of the resource.
func (n *named) hold(version string) {
	*n = named{ResourceStatus: ResourceStatus{Name: n.Name, State: Held, Version: version}}
}

// lose notes that the resource does not exist, and adds it to gone if that is new.
func (n *named) lose(gone []string) []string {
	reported := n.reported
	*n = named{ResourceStatus: ResourceStatus{Name: n.Name, State: Absent}, reported: true}
	if reported {
		return gone
	}
	return append(gone, n.Name)
}

// expire notes that those of a list that still have no answer do not exist, and returns their names.
func (rs resources) expire(list []*named) (gone []string) {
	for _, res := range list {
		if rs[res.Name] == res && res.State == Requested {
			gone = res.lose(gone)
		}
	}
	return gone
}
