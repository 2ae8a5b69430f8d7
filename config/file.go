package config

import (
	"cmp"
	"net/url"
	"path/filepath"

	"tributary/sources"
	"tributary/sources/derive"
	"tributary/sources/file"
)

// Written are the settings of sources with objects that users write.
type Written struct {
	// Count as read at a first start though all of its objects are invalid; for fs also though a directory cannot be read
	// or a link leads nowhere. Default: the source is not synced until that changes.
	PartialStart bool `json:"partialStart,omitempty" reading:"-"`
}

func (s *Written) startsInPart() bool { return s.PartialStart }

// Documents are the settings of sources of YAML and JSON documents.
type Documents struct {
	// Namespace of objects that name none. Default: default.
	DefaultNamespace string `json:"defaultNamespace,omitempty"`
	// Unknown fields: error refuses the object, warn takes it without the field. Default: error.
	UnknownFields string `json:"unknownFields,omitempty"`
	// Objects of other APIs than Istio's: ignore, warn or error. Default: ignore.
	ForeignKinds string `json:"foreignKinds,omitempty"`
	// Completes host names without a dot in VirtualServices and DestinationRules, as istiod does in its own files: with
	// cluster.local, details in namespace shop is details.shop.svc.cluster.local. Default: they stay as they are.
	DomainSuffix string `json:"domainSuffix,omitempty"`
}

func (s *Documents) reading() any { return reading(*s, s.withDefaults()) }

// withDefaults leaves out ForeignKinds, which changes only the messages about objects that are not served.
func (s *Documents) withDefaults() Documents {
	return Documents{
		DefaultNamespace: cmp.Or(s.DefaultNamespace, "default"), UnknownFields: cmp.Or(s.UnknownFields, "error"),
		DomainSuffix: s.DomainSuffix,
	}
}

// File has the settings of fs sources. Zero values stand for the defaults of package file.
type File struct {
	Written
	Documents
	// How long files must be left alone before changes are read. Default: 100ms.
	QuietDelay Duration `json:"quietDelay,omitempty"`
	// How long changes wait for quiet at most. Default: 1s.
	MaxDelay Duration `json:"maxDelay,omitempty"`
	// How often all files are looked at without an event, for file systems that have none. Default: 30s.
	RescanInterval Duration `json:"rescanInterval,omitempty"`
	// How long the objects of a file stay while it is empty or blank, or behind a link in a circle. Default: 10s.
	EmptyGrace Duration `json:"emptyGrace,omitempty"`
	// Follow symbolic links that lead out of the directory. Default: such a link is an error, and its objects keep their
	// last good version.
	FollowLinks bool `json:"followLinks,omitempty"`
	// How large one file may be, in bytes. Default: 67108864.
	MaxFileBytes int64 `json:"maxFileBytes,omitempty"`
	// Makes Istio's objects of the Ingresses and the objects of Gateway API in the files. Default: they are passed over;
	// {} derives with the defaults.
	Derive *Derive `json:"derive,omitempty"`
}

// Source returns the settings as package file takes them.
func (s *File) Source() (settings file.Settings) {
	assign(&settings, *s)
	if s.Derive != nil {
		settings.Derive = new(derive.Options)
		assign(settings.Derive, *s.Derive)
	}
	return settings
}

func (s *File) reading() any {
	values := struct {
		Documents
		Derive *Derive `json:",omitempty"`
	}{Documents: reading(s.Documents, s.withDefaults())}
	if s.Derive != nil {
		d := reading(*s.Derive, nil)
		values.Derive = &d
	}
	return values
}

func (s *File) locate(dir, address string) string { return absoluteAddress(dir, address) }

func (s *File) canonical(address string) string {
	if root, err := file.Root(address); err == nil {
		address = file.Scheme + "://" + (&url.URL{Path: filepath.ToSlash(root)}).EscapedPath()
	}
	return address
}

func (s *File) open(address string, _ Parts) (sources.Source, error) {
	return file.New(address, s.Source())
}
