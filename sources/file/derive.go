package file

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"tributary/resource"
	"tributary/sources"
	"tributary/sources/derive"
)

// derivedGroup is the group of what is made of the objects of other APIs in all files. No file has such a name.
const derivedGroup = "derived"

// keptKinds are the kinds of other APIs that are kept of files, as resource.Options name them.
var keptKinds = func() string {
	var all []string
	for _, k := range derive.Kinds {
		if _, ours := resource.SchemaByAPIVersion(k.Group+"/"+k.Versions[0], k.Kind); !ours {
			all = append(all, k.Kind+"."+k.Group)
		}
	}
	return strings.Join(all, " ")
}()

// derivable returns the kind of an object from which others are derived, or to which these may refer; nil if it is of none.
func derivable(key resource.Key) *derive.Kind {
	for i := range derive.Kinds {
		if k := &derive.Kinds[i]; k.Kind == string(key.Kind) {
			return k
		}
	}
	return nil
}

var errUnnamed = errors.New("metadata.name: it is missing, or no name that an object can have")

// rejectInvalid makes rejects of the objects of other APIs that are not valid.
func rejectInvalid(c *sources.Content, o derive.Options) {
	unscoped := func(key *resource.Key) (known bool) {
		k := derivable(*key)
		if k != nil && !k.Namespaced {
			key.Namespace = ""
		}
		return k != nil
	}
	for i := range c.Rejects {
		c.Rejects[i].Derives = c.Rejects[i].Foreign && unscoped(&c.Rejects[i].Key)
	}
	for i := range c.Others {
		unscoped(&c.Others[i].Key)
	}
	c.Others = slices.DeleteFunc(c.Others, func(other sources.Other) bool {
		err := errUnnamed
		if other.Key.Name != "" {
			err = derive.NewSet(o).Put(other.APIVersion, string(other.Key.Kind), other.Origin, other.JSON)
		}
		if err != nil {
			c.Rejects = append(c.Rejects, sources.Reject{
				Key: other.Key, Foreign: true, Derives: true, Origin: other.Origin, Err: fmt.Errorf("%s: %s: %w", other.Origin, other.Key, err),
			})
		}
		return err != nil
	})
	for _, r := range c.Resources {
		if derivable(r.Key()) != nil {
			c.Others = append(c.Others, contextOf(r))
		}
	}
}

// contextOf returns what is read of a ServiceEntry, to which others may refer.
func contextOf(r *resource.Resource) sources.Other {
	spec, _ := r.Spec()
	entry, _ := spec.(*networking.ServiceEntry)
	text, _ := json.Marshal(map[string]any{ // which cannot fail
		"metadata": map[string]any{"name": r.Key().Name, "namespace": r.Key().Namespace},
		"spec":     map[string]any{"hosts": entry.GetHosts()},
	})
	return sources.Other{Other: resource.Other{APIVersion: "networking.istio.io/v1", JSON: text}, Key: r.Key(), Origin: r.Origin()}
}

// DecodeDeriving makes of a text what a file of it has, and what is derived of that.
func DecodeDeriving(place string, text []byte, o resource.Options, d derive.Options) []sources.Content {
	o.Keep = keptKinds
	c := sources.Decode(place, place, text, o)
	rejectInvalid(&c, d)
	all := newDeriver(d)
	all.accept(place, &c)
	derived, _ := all.commit(func() string { return "" })
	return []sources.Content{c, derived}
}

// deriver makes Istio's objects of the Ingresses and the objects of Gateway API in files. It is owned by the loop.
type deriver struct {
	set     *derive.Set
	files   map[string]fileObjects // that were read
	fresh   map[string]bool        // those of them that were read, or went, since the last commit
	objects map[resource.Key]placed

	// inherited says that an earlier run has derived objects, and that this one may not know yet what all of them were made of.
	inherited bool
	unknown   string // the place of what is not known, as it was said last
}

// fileObjects are the objects of other APIs that a file has.
type fileObjects struct {
	has     []sources.Other // valid ones
	rejects []*sources.Reject
}

// placed is an object and the file that has it, or that has something else in its place.
type placed struct {
	sources.Other

	path string
	kept bool // it is the last good version
}

func newDeriver(o derive.Options) *deriver {
	return &deriver{
		set: derive.NewSet(o), files: make(map[string]fileObjects), fresh: make(map[string]bool), objects: make(map[resource.Key]placed),
	}
}

// accept notes what a file has.
func (d *deriver) accept(path string, c *sources.Content) {
	f := fileObjects{has: c.Others}
	for i := range c.Rejects {
		if r := &c.Rejects[i]; r.Derives || r.Key.Name == "" {
			f.rejects = append(f.rejects, r)
		}
	}
	d.files[path], d.fresh[path] = f, true
}

// remove notes that a file is gone.
func (d *deriver) remove(path string) {
	delete(d.files, path)
	d.fresh[path] = true
}

// commit returns what all files together become, if that may have changed. unread returns a file of which nothing is known yet, or ""; it
// is asked only after a restart.
func (d *deriver) commit(unread func() string) (c sources.Content, changed bool) {
	c = sources.Content{Group: derivedGroup}
	now := make(map[resource.Key]placed)
	for _, path := range slices.Sorted(maps.Keys(d.files)) {
		for _, other := range d.files[path].has {
			if first, repeated := now[other.Key]; repeated {
				c.Warnings = append(c.Warnings, fmt.Sprintf("%s: %s is also at %s, which comes first", other.Origin, other.Key, first.Origin))
			} else {
				now[other.Key] = placed{other, path, false}
			}
		}
	}
	var troubled []string
	for _, path := range slices.Sorted(maps.Keys(d.files)) {
		if len(d.files[path].rejects) > 0 {
			troubled = append(troubled, path)
		}
	}
	for key, last := range d.objects {
		if _, there := now[key]; there {
			continue
		}
		if by := d.keeper(key, last.path, troubled); by != "" {
			now[key] = placed{last.Other, by, true}
			continue
		}
		d.set.Delete(string(key.Kind), key.Namespace, key.Name)
		changed = true
	}
	for key, o := range now {
		if last, there := d.objects[key]; !there || last.Origin != o.Origin || string(last.JSON) != string(o.JSON) {
			_ = d.set.Put(o.APIVersion, string(key.Kind), o.Origin, o.JSON) // it is valid
			changed = true
		}
	}
	d.objects = now
	unknown := d.markRejects(troubled)
	clear(d.fresh)
	if d.inherited {
		if unknown = cmp.Or(unknown, unread()); unknown != "" {
			c.Rejects = []sources.Reject{{Origin: resource.Origin{Place: unknown}, Err: fmt.Errorf("%s: it is not known what is derived from "+
				"it: what was derived before the start stays", unknown)}}
		}
		changed = changed || unknown != d.unknown || unknown == ""
		d.inherited, d.unknown = unknown != "", unknown
	}
	if changed {
		resources, problems := d.set.Derive()
		c.Resources = resources
		for i := range problems {
			c.Warnings = append(c.Warnings, problems[i].Error())
		}
	}
	return c, changed
}

// keeper returns the file that has something else in the place of an object that no file has, and that was last in one; "" if none has. It
// has a broken version of it, or one that is too broken to tell what it is: the same file, or one that the object may have moved to.
// troubled are the files with rejects, in order.
func (d *deriver) keeper(key resource.Key, last string, troubled []string) string {
	may := ""
	for _, path := range troubled {
		for _, r := range d.files[path].rejects {
			switch {
			case r.Key == key:
				return path
			case r.Key.Name == "" && (path == last || may == "" && d.fresh[path]):
				may = path
			}
		}
	}
	return may
}

// markRejects notes of which rejects the last good version still counts, and returns the place of one of which nothing is known, if any.
func (d *deriver) markRejects(troubled []string) (unknown string) {
	kept := make(map[string]bool) // files
	for _, o := range d.objects {
		kept[o.path] = kept[o.path] || o.kept
	}
	for _, path := range troubled {
		for _, r := range d.files[path].rejects {
			_, known := d.objects[r.Key]
			known = known || r.Key.Name == "" && kept[path]
			if d.fresh[path] {
				r.LastGood = known
			}
			if !known {
				unknown = cmp.Or(unknown, r.Origin.Place)
			}
		}
	}
	return unknown
}
