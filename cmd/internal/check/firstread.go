package check

import (
	"context"
	"errors"
	"net/url"
	"path/filepath"

	"tributary/resource"
	"tributary/sources"
	"tributary/sources/file"
)

// FileAddress returns the address of the file source of path.
func FileAddress(path string) string {
	address := filepath.ToSlash(path)
	if !filepath.IsAbs(path) {
		address = "./" + address
	}
	return file.Scheme + "://" + (&url.URL{Path: address}).EscapedPath()
}

// ReadFiles reads what the file source of an address and settings has. It returns the contents, and, if not everything could be
// read, what the source says of that. If nothing could be read, that is an error.
func ReadFiles(ctx context.Context, address string, settings file.Settings) (contents []sources.Content, degraded string, err error) {
	settings.PartialStart = true // what cannot be read is told, not waited for
	source, err := file.New(address, settings)
	if err != nil {
		return nil, "", err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s := &sink{done: cancel}
	if err := source.Run(ctx, s); !errors.Is(err, context.Canceled) {
		return nil, "", err
	}
	if !s.finished { // ctx ended from outside
		return nil, "", ctx.Err()
	}
	switch s.health.State {
	case sources.Unreachable, sources.Denied:
		return nil, "", errors.New(s.health.Message)
	case sources.Degraded:
		return s.contents, s.health.Message, nil
	default:
		return s.contents, "", nil
	}
}

// sink keeps what a source publishes first, and is done then.
type sink struct {
	done     func()
	contents []sources.Content
	synced   bool
	finished bool
	health   sources.Health
}

func (s *sink) Replace(group string, rs []*resource.Resource, rejects ...sources.Reject) error {
	return s.ReplaceAll([]sources.Content{{Group: group, Resources: rs, Rejects: rejects}})
}

func (s *sink) ReplaceAll(contents []sources.Content) error {
	if !s.finished {
		s.contents = append(s.contents, contents...)
	}
	return nil
}

func (s *sink) Groups() []string { return nil }

func (s *sink) Synced() { s.synced = true }

// Report ends the run: the file source reports what it could not read after what it could.
func (s *sink) Report(h sources.Health) {
	if s.finished || h.State == sources.Starting {
		return
	}
	if s.synced || h.State == sources.Unreachable || h.State == sources.Denied {
		s.health, s.finished = h, true
		s.done()
	}
}
