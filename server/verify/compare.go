// Package verify compares what is served with what an istiod really stored, or an Envoy really has. An acknowledgement does not tell:
// istiod acknowledges what it then throws away, and what a proxy in between holds back nobody has acknowledged.
package verify

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"tributary/resource"
)

// Class is in which way an object is not as it is served.
type Class string

// The classes.
const (
	Missing   Class = "missing"   // it is served, and the peer does not have it
	Stale     Class = "stale"     // the peer has what was served before
	Different Class = "different" // the peer has something else
	Rejected  Class = "rejected"  // an Envoy has rejected it
	Warming   Class = "warming"   // an Envoy has it, and waits for what it refers to before it is in force
	Extra     Class = "extra"     // the peer has it, and it is not served, nor was it
)

// Finding is an object that an istiod, or a thing that an Envoy, does not have as it is served.
type Finding struct {
	Class     Class         `json:"class"`
	Kind      resource.Kind `json:"kind"`
	Namespace string        `json:"namespace,omitempty"`
	Name      string        `json:"name"`
	Reason    string        `json:"reason"`
	Origin    string        `json:"origin,omitempty"` // of what is served, where that is known
}

// Key is that of the object.
func (f *Finding) Key() resource.Key {
	return resource.Key{Kind: f.Kind, Namespace: f.Namespace, Name: f.Name}
}

// Stored is an object as an istiod has it.
type Stored struct {
	Key     resource.Key
	Version string             // under which it was sent
	Object  *resource.Resource // nil if it cannot be read
	Err     error              // why
}

// Served is what is served, and to whom.
type Served struct {
	Objects []*resource.Resource
	// Asked says whether anybody asks for a kind; nil if that is not known.
	Asked func(resource.Kind) bool
}

// Compare returns what is not in an istiod as it is served, in order of key. Both are taken to be of one moment.
func Compare(served Served, stored []Stored) []Finding {
	theirs := make(map[resource.Key]*Stored, len(stored))
	kinds := make(map[resource.Kind]bool)
	for i := range stored {
		theirs[stored[i].Key] = &stored[i]
		kinds[stored[i].Key.Kind] = true
	}
	var all []Finding
	add := func(class Class, key resource.Key, origin, reason string) {
		all = append(all, Finding{class, key.Kind, key.Namespace, key.Name, reason, origin})
	}
	for _, ours := range served.Objects {
		key := ours.Key()
		if schema, ok := resource.SchemaOf(key.Kind); !ok || schema.Bare {
			continue // mesh configuration is no object in istiod
		}
		their := theirs[key]
		delete(theirs, key)
		if their == nil {
			if served.Asked == nil || served.Asked(key.Kind) {
				add(Missing, key, ours.Origin().String(), whyMissing(ours, kinds))
			}
			continue
		}
		if class, reason := judge(ours, their); class != "" {
			add(class, key, ours.Origin().String(), reason)
		}
	}
	for key, their := range theirs {
		if their.ours() {
			add(Stale, key, "", "it is no longer served, and istiod has not dropped it")
		} else {
			add(Extra, key, "", "another config source of this istiod has it")
		}
	}
	slices.SortFunc(all, func(a, b Finding) int { return a.Key().Compare(b.Key()) })
	return all
}

// ours says whether an object was sent by a tributary: those make versions of the content.
func (s *Stored) ours() bool {
	return s.Object != nil && content(s.Version) == content(s.Object.Version())
}

// content is the part of a version that the content decides. What follows is the time of creation, by which nothing but the order of
// objects changes.
func content(version string) string {
	hash, _, _ := strings.Cut(version, ".")
	return hash
}

// judge says in which way what istiod has is not what is served; nothing if it is.
func judge(ours *resource.Resource, their *Stored) (Class, string) {
	switch {
	case their.Err != nil:
		return Different, "what istiod has cannot be read: " + their.Err.Error()
	case content(ours.Version()) == content(their.Object.Version()):
		return "", ""
	case content(ours.Version()) == content(their.Version):
		return Different, "istiod shows other content than it was sent"
	case their.ours():
		return Stale, "istiod has the earlier version " + their.Version
	}
	return Different, "another config source of this istiod has it, too"
}

// whyMissing says why istiod may not have an object, given the kinds of which it has any.
func whyMissing(r *resource.Resource, kinds map[resource.Kind]bool) string {
	if revision := r.Labels()[revisionLabel]; revision != "" && revision != "default" {
		return fmt.Sprintf("it is labelled for the revision %s", revision)
	}
	if _, err := resource.LenientMetadata(resource.Validate(r)); err != nil {
		return "istiod's validation refuses it: " + err.Error()
	}
	if !kinds[r.Key().Kind] {
		return "istiod has nothing of this kind: it may not ask for it, or not have been answered yet"
	}
	return "it may be on its way; if it stays so, istiod or what is between has dropped it"
}

// revisionLabel names the revision of Istio that is to have an object.
const revisionLabel = "istio.io/rev"

// CommandAgent is the user agent of the commands of the program, and their name in the node ID unless a flag gives one.
const CommandAgent = "tributary-cli"

// Asked gathers which kinds the clients of a server ask for.
type Asked map[resource.Kind]bool

// Client adds what a client asks for. One of the command line asks for what somebody looks at, which says nothing of istiods.
func (a Asked) Client(nodeID string, typeURLs ...string) {
	if strings.HasPrefix(nodeID, "sidecar~127.0.0.1~"+CommandAgent+".") {
		return
	}
	for _, url := range typeURLs {
		if parts := strings.Split(url, "/"); len(parts) == 3 {
			a[resource.Kind(parts[2])] = true
		}
	}
}

// For reports whether anybody asks for a kind. It is nil if nobody asks for any: an istiod that is cut off is no client, and what it would
// ask for is not known.
func (a Asked) For() func(resource.Kind) bool {
	if len(a) == 0 {
		return nil
	}
	return func(kind resource.Kind) bool { return a[kind] }
}

// maxAnswer bounds what is read of an istiod, in bytes.
const maxAnswer = 1 << 30

// Istiod asks an istiod what it stored.
type Istiod struct {
	URL    string // http://HOST:8080
	Client *http.Client
}

// Check says what is wrong with the URL.
func (i *Istiod) Check() error {
	u, err := url.Parse(i.URL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil {
		return fmt.Errorf("want http://HOST:PORT of istiod's debug pages, got %q", i.URL)
	}
	return nil
}

// Stored returns what the istiod has.
func (i *Istiod) Stored(ctx context.Context) ([]Stored, error) {
	page := strings.TrimSuffix(i.URL, "/") + "/debug/configz"
	text, _, err := Get(ctx, i.Client, page)
	if err != nil {
		return nil, err
	}
	stored, err := Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", page, err)
	}
	return stored, nil
}

// IsTributary says whether it is one of ours that is asked, which has what it serves itself under the same name.
func (i *Istiod) IsTributary(ctx context.Context) bool {
	text, _, err := Get(ctx, i.Client, strings.TrimSuffix(i.URL, "/")+"/metrics")
	return err == nil && (bytes.Contains(text, []byte("\ntributary_build_info{")) || bytes.HasPrefix(text, []byte("tributary_build_info{")))
}

// Parse reads istiod's /debug/configz. Kinds that this program does not know are left out.
func Parse(page []byte) ([]Stored, error) {
	var texts []json.RawMessage
	if err := json.Unmarshal(page, &texts); err != nil {
		return nil, fmt.Errorf("not what istiod answers: %w", err)
	}
	stored := make([]Stored, 0, len(texts))
	for _, text := range texts {
		var head struct {
			Kind     resource.Kind `json:"kind"`
			Metadata struct {
				Name            string `json:"name"`
				Namespace       string `json:"namespace"`
				ResourceVersion string `json:"resourceVersion"`
			} `json:"metadata"`
		}
		if err := json.Unmarshal(text, &head); err != nil {
			return nil, fmt.Errorf("not what istiod answers: %w", err)
		}
		if _, known := resource.SchemaOf(head.Kind); !known {
			continue
		}
		s := Stored{
			Key:     resource.Key{Kind: head.Kind, Namespace: head.Metadata.Namespace, Name: head.Metadata.Name},
			Version: head.Metadata.ResourceVersion,
		}
		s.Object, s.Err = object(text)
		if s.Object != nil {
			s.Key = s.Object.Key()
		}
		stored = append(stored, s)
	}
	return stored, nil
}

func object(text []byte) (*resource.Resource, error) {
	docs := resource.Decode("istiod.json", text, resource.Options{})
	if len(docs) != 1 {
		return nil, errors.New("it is no object")
	}
	if err := docs[0].Errors.Err(); err != nil {
		return nil, err
	}
	return docs[0].Resource, nil
}
