package adsc

import "maps"

// ResourceState is the state of a resource that is requested by name.
type ResourceState int

// The states.
const (
	Requested ResourceState = iota // no answer yet
	Held                           // the handler took it, or the caller has it
	Rejected                       // the handler rejected the last version
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

// ResourceStatus is the status of a resource that is requested by name.
type ResourceStatus struct {
	Name  string
	State ResourceState
	// Version is the last version that the handler took: of the resource in delta mode, else of the response. It is empty
	// without one, also if the server sends none.
	Version string
	Err     error // the reason of the last rejection; nil unless State is Rejected
}

// resources are the resources that are requested by name.
type resources map[string]*requestedResource

// requestedResource is a resource that is requested by name. A resource that was dropped and is requested again is
// another one.
type requestedResource struct {
	ResourceStatus
	reported bool // as absent, and it is still absent
}

// request replaces the requested names. The caller has the resources of versions.
func (rs resources) request(names []string, versions map[string]string) {
	selection := selection{names: names}
	maps.DeleteFunc(rs, func(name string, _ *requestedResource) bool { return !selection.hasName(name) })
	for _, name := range names {
		if rs[name] != nil {
			continue
		}
		rs[name] = &requestedResource{ResourceStatus: ResourceStatus{Name: name}}
		if version := versions[name]; version != "" {
			rs[name].markHeld(version)
		}
	}
}

// unanswered returns the resources without an answer.
func (rs resources) unanswered() (list []*requestedResource) {
	for _, res := range rs {
		if res.State == Requested {
			list = append(list, res)
		}
	}
	return list
}

// byNames returns the resources with these names.
func (rs resources) byNames(names []string) []*requestedResource {
	list := make([]*requestedResource, 0, len(names))
	for _, name := range names {
		if res := rs[name]; res != nil {
			list = append(list, res)
		}
	}
	return list
}

// update applies a response with the resources of these names, except for rejected ones, and returns the names of
// resources that became absent. first says that the response begins a complete set.
func (rs resources) update(r *Response, first bool, names []string, rejected rejection) (absent []string) {
	if len(rs) == 0 {
		return nil
	}
	if first && r.Delta {
		for _, res := range rs { // a complete set answers all requests
			res.State, res.Err = Requested, nil
		}
	}
	included := make(map[string]bool, len(r.Resources))
	for i, name := range names {
		included[name] = true
		res := rs[name]
		switch {
		case res == nil:
		case rejected.includes(name):
			res.State, res.Err, res.reported = Rejected, rejected.err, false
		case r.Delta:
			res.markHeld(r.Resources[i].Version)
		default:
			res.markHeld(r.Version)
		}
	}
	if rejected.entire {
		return nil
	}
	if r.Delta {
		for _, name := range r.Removed {
			if res := rs[name]; res != nil {
				absent = res.markAbsent(absent)
			}
		}
		return absent
	}
	if !r.Complete {
		return nil
	}
	for name, res := range rs {
		// The server may have written this before the request of a resource that was never received.
		if !included[name] && res.State != Requested {
			absent = res.markAbsent(absent)
		}
	}
	return absent
}

// markHeld notes that the handler took a version of the resource.
func (n *requestedResource) markHeld(version string) {
	*n = requestedResource{ResourceStatus: ResourceStatus{Name: n.Name, State: Held, Version: version}}
}

// markAbsent notes that the resource does not exist, and adds it to the absent names if that is new.
func (n *requestedResource) markAbsent(absent []string) []string {
	reported := n.reported
	*n = requestedResource{ResourceStatus: ResourceStatus{Name: n.Name, State: Absent}, reported: true}
	if reported {
		return absent
	}
	return append(absent, n.Name)
}

// expire marks the listed resources without an answer as absent, and returns their names.
func (rs resources) expire(list []*requestedResource) (absent []string) {
	for _, res := range list {
		if rs[res.Name] == res && res.State == Requested {
			absent = res.markAbsent(absent)
		}
	}
	return absent
}
