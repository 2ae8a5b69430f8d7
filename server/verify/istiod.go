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

// Class says how an object of a peer differs from the served one.
type Class string

// The classes.
const (
	Missing   Class = "missing"   // the peer lacks a served object
	Stale     Class = "stale"     // the peer has an earlier served version
	Different Class = "different" // the peer has content of another origin
	Rejected  Class = "rejected"  // an Envoy rejected it
	Warming   Class = "warming"   // an Envoy waits for resources that it refers to before using it
	Extra     Class = "extra"     // the peer has an object that this server never served
)

// Finding is an object of an istiod or a resource of an Envoy that differs from the served one.
type Finding struct {
	Class     Class         `json:"class"`
	Kind      resource.Kind `json:"kind"`
	Namespace string        `json:"namespace,omitempty"`
	Name      string        `json:"name"`
	Reason    string        `json:"reason"`
	Origin    string        `json:"origin,omitempty"` // of the served object, if recorded
}

// Key returns the key of the object.
func (f *Finding) Key() resource.Key {
	return resource.Key{Kind: f.Kind, Namespace: f.Namespace, Name: f.Name}
}

// Stored is an object as an istiod has it.
type Stored struct {
	Key     resource.Key
	Version string             // the version that a server sent
	Object  *resource.Resource // nil if Err is set
	Err     error              // why it cannot be decoded
}

// Served has the served objects and the kinds that clients request.
type Served struct {
	Objects []*resource.Resource
	// Requested reports whether a client subscribes to a kind. If it is nil, all kinds are requested.
	Requested func(resource.Kind) bool
}

// Compare returns the differences between an istiod's objects and the served ones in key order. Both sides have to be
// snapshots of the same moment.
func Compare(served Served, stored []Stored) []Finding {
	storedByKey := make(map[resource.Key]*Stored, len(stored))
	kinds := make(map[resource.Kind]bool)
	for index := range stored {
		storedByKey[stored[index].Key] = &stored[index]
		kinds[stored[index].Key.Kind] = true
	}
	var findings []Finding
	addFinding := func(class Class, key resource.Key, origin, reason string) {
		findings = append(findings, Finding{class, key.Kind, key.Namespace, key.Name, reason, origin})
	}
	for _, object := range served.Objects {
		key := object.Key()
		if schema, ok := resource.SchemaOf(key.Kind); !ok || schema.Bare {
			continue // mesh configuration is no object in istiod
		}
		counterpart := storedByKey[key]
		delete(storedByKey, key)
		if counterpart == nil {
			if served.Requested == nil || served.Requested(key.Kind) {
				addFinding(Missing, key, object.Origin().String(), whyMissing(object, kinds))
			}
			continue
		}
		if class, reason := classify(object, counterpart); class != "" {
			addFinding(class, key, object.Origin().String(), reason)
		}
	}
	for key, counterpart := range storedByKey {
		if counterpart.sentByTributary() {
			addFinding(Stale, key, "", "it is no longer served, and istiod still has it")
		} else {
			addFinding(Extra, key, "", "another config source of this istiod has it")
		}
	}
	slices.SortFunc(findings, func(a, b Finding) int { return a.Key().Compare(b.Key()) })
	return findings
}

// sentByTributary reports whether a tributary sent the object: its versions are hashes of the content.
func (s *Stored) sentByTributary() bool {
	return s.Object != nil && contentHash(s.Version) == contentHash(s.Object.Version())
}

// contentHash returns the part of a version that hashes the content. The rest encodes the creation time, which only
// orders objects.
func contentHash(version string) string {
	hash, _, _ := strings.Cut(version, ".")
	return hash
}

// classify returns the class of difference between a served object and istiod's, with the reason. Equal objects have no
// class.
func classify(object *resource.Resource, counterpart *Stored) (Class, string) {
	switch {
	case counterpart.Err != nil:
		return Different, "istiod's object cannot be read: " + counterpart.Err.Error()
	case contentHash(object.Version()) == contentHash(counterpart.Object.Version()):
		return "", ""
	case contentHash(object.Version()) == contentHash(counterpart.Version):
		return Different, "istiod shows other content than it was sent"
	case counterpart.sentByTributary():
		return Stale, "istiod has the earlier version " + counterpart.Version
	}
	return Different, "another config source of this istiod has it, too"
}

// whyMissing returns the likely reason why istiod lacks an object. kinds has the kinds of istiod's objects.
func whyMissing(object *resource.Resource, kinds map[resource.Kind]bool) string {
	if revision := object.Labels()[resource.RevisionLabel]; revision != "" && revision != "default" {
		return fmt.Sprintf("it is labelled for the revision %s", revision)
	}
	if _, err := resource.LenientMetadata(resource.Validate(object)); err != nil {
		return "istiod's validation refuses it: " + err.Error()
	}
	if !kinds[object.Key().Kind] {
		return "istiod has no object of this kind: it may not request it, or be waiting for an answer"
	}
	return "it may be on its way; if it stays so, istiod or a proxy in between has dropped it"
}

// CommandAgent is the user agent of the program's commands, and their name in the node ID unless a flag sets it.
const CommandAgent = "tributary-cli"

// RequestedKinds collects the kinds that the clients of a server subscribe to.
type RequestedKinds map[resource.Kind]bool

// AddClient adds the subscriptions of a client. It skips the program's own commands: their subscriptions follow the
// user's question and not istiod's needs.
func (r RequestedKinds) AddClient(nodeID string, typeURLs ...string) {
	if strings.HasPrefix(nodeID, "sidecar~127.0.0.1~"+CommandAgent+".") {
		return
	}
	for _, typeURL := range typeURLs {
		if parts := strings.Split(typeURL, "/"); len(parts) == 3 {
			r[resource.Kind(parts[2])] = true
		}
	}
}

// Filter returns a function that reports whether a client requests a kind. It is nil without requests: an istiod that
// is disconnected is no client, so its requests are unknown.
func (r RequestedKinds) Filter() func(resource.Kind) bool {
	if len(r) == 0 {
		return nil
	}
	return func(kind resource.Kind) bool { return r[kind] }
}

// maxAnswer limits the bytes of an answer.
const maxAnswer = 1 << 30

// Istiod reads the stored objects of an istiod.
type Istiod struct {
	URL    string // http://HOST:8080
	Client *http.Client
}

// Check validates the URL.
func (i *Istiod) Check() error {
	u, err := url.Parse(i.URL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil {
		return fmt.Errorf("want http://HOST:PORT of istiod's debug pages, got %q", i.URL)
	}
	return nil
}

// Stored returns the objects of the istiod.
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

// IsTributary reports whether the URL leads to a tributary, which offers its own served objects at the same path.
func (i *Istiod) IsTributary(ctx context.Context) bool {
	metrics, _, err := Get(ctx, i.Client, strings.TrimSuffix(i.URL, "/")+"/metrics")
	return err == nil && bytes.Contains(metrics, []byte("tributary_build_info{"))
}

// Parse reads istiod's /debug/configz. It skips kinds that this program does not support.
func Parse(page []byte) ([]Stored, error) {
	var texts []json.RawMessage
	if err := json.Unmarshal(page, &texts); err != nil {
		return nil, fmt.Errorf("not an answer of istiod: %w", err)
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
			return nil, fmt.Errorf("not an answer of istiod: %w", err)
		}
		if _, supported := resource.SchemaOf(head.Kind); !supported {
			continue
		}
		object := Stored{
			Key:     resource.Key{Kind: head.Kind, Namespace: head.Metadata.Namespace, Name: head.Metadata.Name},
			Version: head.Metadata.ResourceVersion,
		}
		object.Object, object.Err = decodeObject(text)
		if object.Object != nil {
			object.Key = object.Object.Key()
		}
		stored = append(stored, object)
	}
	return stored, nil
}

func decodeObject(text []byte) (*resource.Resource, error) {
	docs := resource.Decode("istiod.json", text, resource.Options{})
	if len(docs) != 1 {
		return nil, errors.New("it is no object")
	}
	if err := docs[0].Errors.Err(); err != nil {
		return nil, err
	}
	return docs[0].Resource, nil
}
