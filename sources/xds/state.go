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

// maxResources is the limit of resources in one complete set, or in one change: five times the largest known mesh. It
// is necessary because an encoded resource of ten bytes takes much more memory.
const maxResources = 500_000

// unnamed is the group of resources that are too broken to have a name.
const unnamed = "(unnamed)"

// unnamedChange stands for unnamed resources of the last change in complaints.
const unnamedChange = "(unnamed in a change)"

// typeState is the state of one type URL. It does no I/O.
type typeState struct {
	typeURL  string
	schema   *resource.Schema
	revision string
	seed     maphash.Seed

	// hashes has a hash of the received resource for each published name. Names of an earlier run have 0.
	hashes   map[string]uint64
	standing TypeStanding
	// answered says that a full answer of a server was taken.
	answered bool
	// refused has the reasons of quarantined names: a set that still has such a resource is rejected again.
	refused map[string]error
	// fullSet is the received part of a complete set; nil between sets.
	fullSet *fullSet
	// complaints are problems of resources that are not quarantined, by name. The names unnamed and unnamedChange stand
	// for resources without a name in the last complete set, and in the last change.
	complaints map[string]string
}

// fullSet is the received part of a complete set.
type fullSet struct {
	last          map[string]int   // name to the index of its last resource in the set
	count         int              // of received resources
	nameless      int              // of resources without a name
	firstNameless []sources.Reject // the first resources without a name
}

func newTypeState(typeURL string, schema *resource.Schema, revision string) *typeState {
	return &typeState{
		typeURL: typeURL, schema: schema, revision: revision, seed: maphash.MakeSeed(),
		hashes: make(map[string]uint64), refused: make(map[string]error), complaints: make(map[string]string),
	}
}

// checkSize returns an error for a response that exceeds the limit, else nil.
func (t *typeState) checkSize(r *adsc.Response) error {
	n := len(r.Resources) + len(r.Removed)
	if r.Complete && t.fullSet != nil {
		n += t.fullSet.count
	}
	if n > maxResources {
		return status.Errorf(codes.ResourceExhausted, "%s: the answer of %d resources is refused: it has more than %d",
			t.typeURL, n, maxResources)
	}
	return nil
}

// apply returns the changes by a response, each group once, and the faults that are not in contents.
func (t *typeState) apply(response *adsc.Response) (contents []sources.Content, faults faults) {
	if response.Complete && t.fullSet == nil {
		t.fullSet = &fullSet{last: make(map[string]int)}
		clear(t.complaints)
	}
	delete(t.complaints, unnamedChange)
	last, offset := make(map[string]int), 0
	if response.Complete {
		last, offset = t.fullSet.last, t.fullSet.count
		t.fullSet.count += len(response.Resources)
	}
	for i, object := range response.Resources {
		name := nameIn(t.schema, object)
		if name == "" {
			t.addNameless(object, &faults)
			continue
		}
		if index, ok := last[name]; ok && index >= offset {
			t.complain(name, "sent twice in one response; the last one counts", &faults)
		} else {
			delete(t.complaints, name)
		}
		last[name] = offset + i
	}
	for i, object := range response.Resources {
		name := nameIn(t.schema, object)
		if name == "" || last[name] != offset+i {
			continue
		}
		hash := t.hash(object.Body)
		if old, ok := t.hashes[name]; ok && old == hash && hash != 0 {
			if err := t.refused[name]; err != nil {
				faults.add(func() error { return err })
			}
			continue
		}
		t.hashes[name] = hash
		delete(t.refused, name)
		contents = append(contents, t.content(name, object.Body))
	}
	for _, name := range response.Removed {
		if index, ok := last[name]; ok && index >= offset {
			t.complain(name, "sent and removed in one response; it stays", &faults)
			continue
		}
		if name == unnamed {
			continue // no resource has this name
		}
		if response.Complete {
			delete(last, name)
		}
		delete(t.complaints, name)
		contents = t.withdraw(contents, name)
	}
	if response.Complete && !response.More {
		contents = t.finishSet(contents)
	}
	return contents, faults
}

// complain notes a problem of a resource once.
func (t *typeState) complain(name, text string, faults *faults) {
	if _, isKnown := t.complaints[name]; isKnown {
		return
	}
	err := t.fault(name, errors.New(text))
	t.complaints[name] = err.Error()
	faults.add(func() error { return err })
}

// addNameless notes a resource without a name.
func (t *typeState) addNameless(res adsc.Resource, faults *faults) {
	fault := func() error {
		_, err := Decode(t.typeURL, res.Body)
		if err == nil {
			err = errors.New("it has no name")
		}
		place := groupOf(t.typeURL, unnamed)
		return &resource.Error{Key: resource.Key{Kind: t.schema.Kind}, Origin: resource.Origin{Place: place}, Err: err}
	}
	if t.fullSet == nil {
		if _, isKnown := t.complaints[unnamedChange]; !isKnown {
			t.complaints[unnamedChange] = fault().Error()
		}
	} else {
		t.fullSet.nameless++
		if len(t.fullSet.firstNameless) < maxFaults {
			t.fullSet.firstNameless = append(t.fullSet.firstNameless, sources.Reject{
				MayRestrict: resource.Restricts(t.schema.Kind), Err: fault(),
				Origin: resource.Origin{Place: groupOf(t.typeURL, unnamed)},
			})
		}
	}
	faults.add(fault)
}

// fault returns an error about a resource.
func (t *typeState) fault(name string, err error) *resource.Error {
	return &resource.Error{Key: keyOf(t.schema, name), Origin: resource.Origin{Place: groupOf(t.typeURL, name)}, Err: err}
}

// content returns the content of the group of a resource.
func (t *typeState) content(name string, body *anypb.Any) sources.Content {
	content := sources.Content{Group: groupOf(t.typeURL, name)}
	origin := resource.Origin{Place: content.Group}
	object, err := Decode(t.typeURL, body)
	switch {
	case err != nil:
		content.Rejects = []sources.Reject{{Key: keyOf(t.schema, name), Origin: origin, Err: t.fault(name, err)}}
	case isForRevision(object, t.revision):
		content.Resources = []*resource.Resource{object.WithOrigin(origin)}
	}
	return content
}

// finishSet ends a complete set, and withdraws all names that it lacks, unless it has a resource without a name, which
// may be any of them.
func (t *typeState) finishSet(contents []sources.Content) []sources.Content {
	finished := t.fullSet
	t.fullSet = nil
	if n := finished.nameless; n > 0 {
		t.complaints[unnamed] = fmt.Sprintf(
			"%s: %d resources cannot be read and have no name: until that ends, no resource of the type is deleted", t.typeURL,
			n)
		t.hashes[unnamed] = 0
		return append(contents, sources.Content{Group: groupOf(t.typeURL, unnamed), Rejects: finished.firstNameless})
	}
	for _, name := range slices.Sorted(maps.Keys(t.hashes)) {
		if _, isIncluded := finished.last[name]; !isIncluded {
			contents = t.withdraw(contents, name)
		}
	}
	return contents
}

// withdraw adds the removal of a name to contents.
func (t *typeState) withdraw(contents []sources.Content, name string) []sources.Content {
	if _, ok := t.hashes[name]; !ok {
		return contents
	}
	delete(t.hashes, name)
	delete(t.refused, name)
	return append(contents, sources.Content{Group: groupOf(t.typeURL, name)})
}

// noteRefusals notes the resources that the sink refused.
func (t *typeState) noteRefusals(err error) {
	for _, e := range resource.ErrorsIn(err) {
		if typeURL, name := splitGroup(e.Origin.Place); typeURL == t.typeURL && name != unnamed {
			t.refused[name] = errors.Join(t.refused[name], e)
		}
	}
}

// rejectedOf returns the server's names of the quarantined resources of a response.
func (t *typeState) rejectedOf(r *adsc.Response) (names []string) {
	for _, res := range r.Resources {
		if t.refused[nameIn(t.schema, res)] != nil {
			names = append(names, res.Name)
		}
	}
	return names
}

func (t *typeState) hash(body *anypb.Any) uint64 {
	var hash maphash.Hash
	hash.SetSeed(t.seed)
	_, _ = hash.WriteString(body.GetTypeUrl()) // a hash has no errors
	_ = hash.WriteByte(0)
	_, _ = hash.Write(body.GetValue())
	return hash.Sum64()
}

// maxFaults is the number of faults that one response reports. A server that sends invalid resources of two bytes must
// not fill the memory with reasons.
const maxFaults = 20

// faults are the first faults of a response, and the number of the others.
type faults struct {
	first    []error
	unlisted int
}

// add calls fault and adds its result, or only counts the fault beyond maxFaults.
func (f *faults) add(fault func() error) {
	if len(f.first) == maxFaults {
		f.unlisted++
		return
	}
	f.first = append(f.first, fault())
}

// addAll adds the refusals of a sink.
func (f *faults) addAll(refused error) {
	for _, e := range resource.ErrorsIn(refused) {
		f.add(func() error { return e })
	}
}

// err returns all faults as one error, or nil.
func (f *faults) err() error {
	if f.unlisted == 0 {
		return errors.Join(f.first...)
	}
	return errors.Join(errors.Join(f.first...), fmt.Errorf("and %d more", f.unlisted))
}
