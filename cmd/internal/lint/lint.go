// Package lint finds what is wrong with files of mesh configuration. It reads them as the file source does and checks
// them as the server does, so that what it lets pass is served.
package lint

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"tributary/cmd/internal/firstread"
	"tributary/resource"
	"tributary/sources"
	"tributary/sources/file"
)

// Finding is one thing that is wrong. Kind, Namespace and Name are empty if they cannot be told.
type Finding struct {
	Place     string        `json:"place"` // file:line or file:line:column
	Kind      resource.Kind `json:"kind,omitempty"`
	Namespace string        `json:"namespace,omitempty"`
	Name      string        `json:"name,omitempty"`
	Severity  Severity      `json:"severity"`
	Message   string        `json:"message"`
}

// Severity says what a finding means for what is served.
type Severity string

// The severities.
const (
	Error   Severity = "error"   // the object is not served
	Warning Severity = "warning" // it is
)

// String returns the finding as one line: "file:line: Kind ns/name: message".
func (f Finding) String() string {
	var b strings.Builder
	b.WriteString(f.Place + ": ")
	if f.Kind != "" {
		key := resource.Key{Kind: f.Kind, Namespace: f.Namespace, Name: f.Name}
		b.WriteString(strings.TrimSpace(key.String()) + ": ")
	}
	if f.Severity == Warning {
		b.WriteString("warning: ")
	}
	b.WriteString(strings.ReplaceAll(f.Message, "\n", "; "))
	return b.String()
}

// Linter looks at one path after another. An object that is there twice is a finding, too: within a path an error, since
// one source can serve it but once, and a warning if another path has it, since sources may shadow each other on purpose.
type Linter struct {
	Findings []Finding
	Objects  int // looked at and found right, but for warnings

	looks int // at paths
	seen  map[resource.Key]sight
}

// sight is where an object was seen first.
type sight struct {
	place string
	look  int
}

// Path looks at a file or a directory tree.
func (l *Linter) Path(ctx context.Context, path string) error {
	return l.Address(ctx, firstread.Address(path), file.Settings{})
}

// Address looks at what the file source of an address and settings reads.
func (l *Linter) Address(ctx context.Context, address string, settings file.Settings) error {
	contents, degraded, err := firstread.Files(ctx, address, settings)
	if err != nil {
		return err
	}
	if degraded != "" {
		l.Findings = append(l.Findings, Finding{Place: address, Severity: Error, Message: degraded})
	}
	l.Contents(contents...)
	return nil
}

// Contents looks at what was read from one path.
func (l *Linter) Contents(contents ...sources.Content) {
	l.looks++
	for _, c := range contents {
		l.content(c)
	}
}

func (l *Linter) content(c sources.Content) {
	for _, w := range c.Warnings {
		place, message, _ := strings.Cut(w, ": ")
		l.Findings = append(l.Findings, Finding{Place: place, Severity: Warning, Message: message})
	}
	for _, r := range c.Rejects {
		l.add(Error, r.Key, r.Origin.Place, r.Err)
	}
	for _, r := range c.Resources {
		warnings, err := resource.Validate(r)
		l.add(Error, r.Key(), r.Origin().Place, err)
		l.add(Warning, r.Key(), r.Origin().Place, warnings.Err())
		if err != nil {
			continue
		}
		l.unique(r.Key(), r.Origin().Place)
	}
}

// unique notes whether the object of key was seen before.
func (l *Linter) unique(key resource.Key, place string) {
	switch first, seen := l.seen[key]; {
	case !seen:
		if l.seen == nil {
			l.seen = make(map[resource.Key]sight)
		}
		l.seen[key] = sight{place, l.looks}
		l.Objects++
	case first.look == l.looks:
		l.add(Error, key, place, fmt.Errorf("already defined at %s, which wins", first.place))
	case !samePlace(first.place, place):
		l.add(Warning, key, place, fmt.Errorf("also defined at %s", first.place))
	}
}

// samePlace reports whether two places are one, looked at under different names.
func samePlace(a, b string) bool {
	absA, errA := filepath.Abs(a)
	absB, errB := filepath.Abs(b)
	return errA == nil && errB == nil && absA == absB
}

// add notes err, which is about the object of key at place unless it says so better itself.
func (l *Linter) add(severity Severity, key resource.Key, place string, err error) {
	if err == nil {
		return
	}
	all := resource.ErrorsIn(err)
	if len(all) == 0 {
		message := strings.TrimPrefix(err.Error(), place+": ")
		all = resource.Errors{{Key: key, Origin: resource.Origin{Place: place}, Err: errors.New(message)}}
	}
	for _, e := range all {
		l.Findings = append(l.Findings, Finding{
			Place: e.Origin.Place, Kind: e.Key.Kind, Namespace: e.Key.Namespace, Name: e.Key.Name,
			Severity: severity, Message: e.Err.Error(),
		})
	}
}
