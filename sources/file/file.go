// Package file reads mesh configuration from files: a directory tree or a single file, watched.
//
// The group of a resource is the path of its file within the root, so that of two files with the same key the first in
// order of path wins. README.md describes the behaviour in each
// situation.
package file

import (
	"cmp"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"tributary/resource"
	"tributary/sources"
	"tributary/sources/derive"
)

// Scheme is the scheme of addresses of files.
const Scheme = "fs"

// Settings are the options of a file source. Zero values stand for the defaults.
type Settings struct {
	sources.Texts
	// QuietDelay is the time without changes before changes are read. A file that is missing for less does not count as
	// deleted. Default: 100ms.
	QuietDelay time.Duration
	// MaxDelay limits the wait of changes for quiet. Default: 1s.
	MaxDelay time.Duration
	// RescanInterval is the interval of full looks, for file systems without events. Default: 30s.
	RescanInterval time.Duration
	// EmptyGrace is the time that the objects of a file stay while it is empty, or below a link in a circle: a file is
	// empty until the program that writes it is done. Default: 10s.
	EmptyGrace time.Duration
	// PartialStart lets a start without earlier state go on though a directory cannot be read or a link leads nowhere.
	// Otherwise the source is not synced until all was read once.
	PartialStart bool
	// FollowLinks follows symbolic links that lead out of the root. Otherwise anyone who can write to the directory could
	// publish files that only this program may read.
	FollowLinks bool
	// MaxFileBytes limits the size of one file. Default: 64 MiB.
	MaxFileBytes int64
	// Derive converts Ingresses and objects of Gateway API to Istio's objects; nil ignores them.
	Derive *derive.Options
}

// withDefaults returns the settings with the defaults filled in, or an error that names the key at fault.
func (s Settings) withDefaults() (Settings, error) {
	s.QuietDelay = cmp.Or(s.QuietDelay, 100*time.Millisecond)
	s.MaxDelay = cmp.Or(s.MaxDelay, max(time.Second, s.QuietDelay))
	s.RescanInterval = cmp.Or(s.RescanInterval, 30*time.Second)
	s.EmptyGrace = cmp.Or(s.EmptyGrace, max(10*time.Second, s.QuietDelay))
	s.MaxFileBytes = cmp.Or(s.MaxFileBytes, 64<<20)
	for _, setting := range []struct {
		key          string
		value, least time.Duration
	}{
		{"quietDelay", s.QuietDelay, time.Millisecond},
		{"maxDelay", s.MaxDelay, s.QuietDelay},
		{"rescanInterval", s.RescanInterval, 100 * time.Millisecond},
		{"emptyGrace", s.EmptyGrace, s.QuietDelay},
	} {
		if setting.value < setting.least {
			return s, fmt.Errorf("%s: want at least %s, got %s", setting.key, setting.least, setting.value)
		}
	}
	if s.Derive != nil {
		if err := s.Derive.Check(); err != nil {
			return s, fmt.Errorf("derive.%w", err)
		}
	}
	if s.MaxFileBytes < 0 {
		return s, fmt.Errorf("maxFileBytes: want more than 0, got %d", s.MaxFileBytes)
	}
	return s, nil
}

// Source is a sources.Source of files. It has no state between runs.
type Source struct {
	disk     disk
	blind    bool   // without events
	parse    parser // of the text of a file
	patience func(size int64, synced bool) time.Duration
	root     string // absolute
	shown    string // as in the address
	settings Settings
	decode   resource.Options
}

var _ sources.Source = (*Source)(nil)

// New returns a source of the directory or file at address: "fs:///path", or "fs://./path" and "fs://../path" relative
// to the working directory. Run finds out whether it exists.
func New(address string, settings Settings) (*Source, error) {
	shown, err := parse(address)
	if err != nil {
		return nil, fmt.Errorf("address: %q: %w", address, err)
	}
	root, err := filepath.Abs(shown)
	if err != nil {
		return nil, fmt.Errorf("address: %q: %w", address, err)
	}
	if settings, err = settings.withDefaults(); err != nil {
		return nil, err
	}
	decode, err := settings.Options()
	if err != nil {
		return nil, err
	}
	decode.MaxBytes = int(settings.MaxFileBytes)
	if settings.Derive != nil {
		decode.Keep = DerivedKinds
		o := *settings.Derive
		o.DomainSuffix = cmp.Or(o.DomainSuffix, decode.DomainSuffix)
		settings.Derive = &o
	}
	return &Source{
		disk: osDisk{}, parse: sources.DecodeIncremental, patience: patience,
		root: root, shown: shown, settings: settings, decode: decode,
	}, nil
}

// parse returns the path in an address. As in every URL, % begins an escape.
func parse(address string) (string, error) {
	rest, ok := strings.CutPrefix(address, Scheme+"://")
	if !ok {
		return "", fmt.Errorf("want %s:///path", Scheme)
	}
	if strings.ContainsAny(rest, "?#") {
		return "", fmt.Errorf("a path has no query or fragment; write ? as %%3F and # as %%23")
	}
	name, err := url.PathUnescape(rest)
	if err != nil {
		return "", err
	}
	first, _, _ := strings.Cut(name, "/")
	switch {
	case name == "":
		return "", fmt.Errorf("the path is missing; want %s:///path", Scheme)
	case strings.ContainsRune(name, 0):
		return "", fmt.Errorf("a path has no zero byte")
	case first != "" && first != "." && first != "..":
		return "", fmt.Errorf(
			"%q stands where a host would; want %s:///%s, or %s://./%s for a path from the working directory",
			first, Scheme, rest, Scheme, rest)
	}
	return filepath.Clean(filepath.FromSlash(name)), nil
}

// Root returns the path at address, absolute: one that is relative is so to the working directory.
func Root(address string) (string, error) {
	shown, err := parse(address)
	if err != nil {
		return "", err
	}
	return filepath.Abs(shown)
}
