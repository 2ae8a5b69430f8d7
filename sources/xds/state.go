package xds

import (
	"errors"
	"fmt"
	"hash/maphash"
	"maps"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"

	"tributary/adsc"
	"tributary/resource"
	"tributary/sources"
)

// maxResources is how many resources one answer may have, in however many responses: five times as many as we know of
// anywhere. What a resource costs here has no relation to its size on the wire, which may be ten bytes.
const maxResources = 500_000

// unnamed is the name of the group of what is too broken to have a name.
const unnamed = "(unnamed)"

// unnamedChange is unnamed for complaints about the last change.
const unnamedChange = "(unnamed in a change)"

// typeState is what is known of one type URL. It does no I/O.
type typeState struct {
	typeURL  string
	schema   *resource.Schema
	revision string
	seed     maphash.Seed

	// known are the names that were published, each with a hash of what was received. Those of an earlier run have 0.
	known    map[string]uint64
	standing TypeStanding
	// answered says that a server has answered for all of it, and that the answer was taken.
	answered bool
	// refused is why a name is quarantined, for as long as it is: a set that still has it is rejected for it again.
	refused map[string]error
	// set is what has come of a complete set; nil between sets.
	set *set
	// complaints are what nothing else shows, by the name of the resource that they are about. A resource that has none
	// is only known to have been in the last complete set, or in the last change.
	complaints map[string]string
}

// set is a complete set on its way.
type set struct {
	last     map[string]int   // name to which of the resources of the set it was last
	count    int              // of resources so far
	nameless int              // of these
	broken   []sources.Reject // the first of the nameless
}

func newTypeState(typeURL string, schema *resource.Schema, revision string) *typeState {
	return &typeState{
		typeURL: typeURL, schema: schema, revision: revision, seed: maphash.MakeSeed(),
		known: make(map[string]uint64), refused: make(map[string]error), complaints: make(map[string]string),
	}
}

// fits returns why a response is too much, or nil.
func (t *typeState) fits(r *adsc.Response) error {
	n := len(r.Resources) + len(r.Removed)
	if r.Complete && t.set != nil {
		n += t.set.count
	}
	if n > maxResources {
		return status.Errorf(codes.ResourceExhausted, "%s: %d resources in one answer, of which nothing is taken: more than %d",
			t.typeURL, n, maxResources)
	}
	return nil
}

// apply works out what a response changes, each group once. faults are those that nothing in contents tells of.
func (t *typeState) apply(r *adsc.Response) (contents []sources.Content, faults faults) {
	if r.Complete && t.set == nil {
		t.set = &set{last: make(map[string]int)}
		clear(t.complaints)
	}
	delete(t.complaints, unnamedChange)
	last, begin := make(map[string]int), 0
	if r.Complete {
		last, begin = t.set.last, t.set.count
		t.set.count += len(r.Resources)
	}
	for i, res := range r.Resources {
		name := nameIn(t.schema, res)
		if name == "" {
			t.nameless(res, &faults)
			continue
		}
		if at, ok := last[name]; ok && at >= begin {
			t.complain(name, "sent twice in one response; the last one counts", &faults)
		} else {
			delete(t.complaints, name)
		}
		last[name] = begin + i
	}
	for i, res := range r.Resources {
		name := nameIn(t.schema, res)
		if name == "" || last[name] != begin+i {
			continue
		}
		hash := t.hash(res.Body)
		if old, ok := t.known[name]; ok && old == hash && hash != 0 {
			if err := t.refused[name]; err != nil {
				faults.add(func() error { return err })
			}
			continue
		}
		t.known[name] = hash
		delete(t.refused, name)
		contents = append(contents, t.content(name, res.Body))
	}
	for _, name := range r.Removed {
		if at, ok := last[name]; ok && at >= begin {
			t.complain(name, "sent and removed in one response; it stays", &faults)
			continue
		}
		if name == unnamed {
			continue // no server has what is called so
		}
		if r.Complete {
			delete(last, name)
		}
		delete(t.complaints, name)
		contents = t.withdraw(contents, name)
	}
	if r.Complete && !r.More {
		contents = t.conclude(contents)
	}
	return contents, faults
}

// complain notes something about the resource called name that nothing else shows, once.
func (t *typeState) complain(name, text string, f *faults) {
	if _, told := t.complaints[name]; told {
		return
	}
	err := t.fault(name, errors.New(text))
	t.complaints[name] = err.Error()
	f.add(func() error { return err })
}

// nameless notes a resource without a name.
func (t *typeState) nameless(res adsc.Resource, f *faults) {
	fault := func() error {
		_, err := decode(t.typeURL, res.Body)
		if err == nil {
			err = errors.New("it has no name")
		}
		place := groupOf(t.typeURL, unnamed)
		return &resource.Error{Key: resource.Key{Kind: t.schema.Kind}, Origin: resource.Origin{Place: place}, Err: err}
	}
	if t.set == nil {
		if _, told := t.complaints[unnamedChange]; !told {
			t.complaints[unnamedChange] = fault().Error()
		}
	} else {
		t.set.nameless++
		if len(t.set.broken) < maxFaults {
			t.set.broken = append(t.set.broken, sources.Reject{
				MayRestrict: resource.Restricts(t.schema.Kind), Origin: resource.Origin{Place: groupOf(t.typeURL, unnamed)}, Err: fault(),
			})
		}
	}
	f.add(fault)
}

// fault is an error about the resource called name.
func (t *typeState) fault(name string, err error) *resource.Error {
	return &resource.Error{Key: keyOf(t.schema, name), Origin: resource.Origin{Place: groupOf(t.typeURL, name)}, Err: err}
}

// content is the whole of the group of name.
func (t *typeState) content(name string, body *anypb.Any) sources.Content {
	c := sources.Content{Group: groupOf(t.typeURL, name)}
	origin := resource.Origin{Place: c.Group}
	res, err := decode(t.typeURL, body)
	switch {
	case err != nil:
		c.Rejects = []sources.Reject{{Key: keyOf(t.schema, name), Origin: origin, Err: t.fault(name, err)}}
	case forRevision(res, t.revision):
		c.Resources = []*resource.Resource{res.WithOrigin(origin)}
	}
	return c
}

// conclude ends a complete set: what was not in it has gone, unless something in it cannot be told by name, which may be
// any of those.
func (t *typeState) conclude(contents []sources.Content) []sources.Content {
	done := t.set
	t.set = nil
	if n := done.nameless; n > 0 {
		t.complaints[unnamed] = fmt.Sprintf(
			"%s: %d resources cannot be read and have no name: nothing of the type is deleted while that is so", t.typeURL, n)
		t.known[unnamed] = 0
		return append(contents, sources.Content{Group: groupOf(t.typeURL, unnamed), Rejects: done.broken})
	}
	for _, name := range slices.Sorted(maps.Keys(t.known)) {
		if _, there := done.last[name]; !there {
			contents = t.withdraw(contents, name)
		}
	}
	return contents
}

// withdraw adds to contents that name has gone.
func (t *typeState) withdraw(contents []sources.Content, name string) []sources.Content {
	if _, ok := t.known[name]; !ok {
		return contents
	}
	delete(t.known, name)
	delete(t.refused, name)
	return append(contents, sources.Content{Group: groupOf(t.typeURL, name)})
}

// refuse notes what the sink refused.
func (t *typeState) refuse(err error) {
	for _, e := range resource.ErrorsIn(err) {
		if typeURL, name := splitGroup(e.Origin.Place); typeURL == t.typeURL && name != unnamed {
			t.refused[name] = errors.Join(t.refused[name], e)
		}
	}
}

// rejectedOf returns the names of what is quarantined of a response, as the server has them.
func (t *typeState) rejectedOf(r *adsc.Response) (names []string) {
	for _, res := range r.Resources {
		if t.refused[nameIn(t.schema, res)] != nil {
			names = append(names, res.Name)
		}
	}
	return names
}

func (t *typeState) hash(body *anypb.Any) uint64 {
	var h maphash.Hash
	h.SetSeed(t.seed)
	_, _ = h.WriteString(body.GetTypeUrl()) // a hash takes everything
	_ = h.WriteByte(0)
	_, _ = h.Write(body.GetValue())
	return h.Sum64()
}

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
