package check

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"path/filepath"
	"slices"
	"sync"
	"time"

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
	r, err := firstRead(ctx, source)
	switch {
	case !errors.Is(err, context.Canceled):
		return nil, "", err
	case !r.finished: // ctx ended from outside
		return nil, "", ctx.Err()
	case r.health.State == sources.Unreachable, r.health.State == sources.Denied:
		return nil, "", errors.New(r.health.Message)
	case r.health.State == sources.Degraded:
		return r.contents, r.health.Message, nil
	}
	return r.contents, "", nil
}

// registryPatience is how long a registry has to tell what it has.
const registryPatience = 30 * time.Second

// ReadRegistry reads what a source of any kind has, as the server does when it starts, and returns what the source says of itself then. An
// error says that it cannot be read.
func ReadRegistry(ctx context.Context, source sources.Source) (contents []sources.Content, said string, err error) {
	ctx, cancel := context.WithTimeout(ctx, registryPatience)
	defer cancel()
	r, err := firstRead(ctx, source)
	switch {
	case !r.finished && errors.Is(ctx.Err(), context.DeadlineExceeded):
		return nil, "", &UnreadError{r.health.State, fmt.Sprintf("it is not read after %s: %s, %s", registryPatience, r.health.State,
			r.health.Message)}
	case !r.finished:
		return nil, "", err
	case !r.synced:
		return nil, "", &UnreadError{r.health.State, r.health.Message}
	}
	return r.contents, r.health.Message, nil
}

// UnreadError says that a source cannot be read.
type UnreadError struct {
	State sources.State // which it is in
	Text  string
}

func (e *UnreadError) Error() string { return e.Text }

// firstRead runs a source until it has published everything, or says that it cannot. The error is that of the run.
func firstRead(ctx context.Context, source sources.Source) (*reading, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r := &reading{done: cancel, places: make(map[string]int)}
	err := source.Run(ctx, r)
	r.mu.Lock()
	defer r.mu.Unlock()
	return r, err
}

// reading is a sink that keeps what a source publishes first, and is done when that is whole, or cannot be had.
type reading struct {
	done func()

	mu       sync.Mutex
	contents []sources.Content
	places   map[string]int // of groups, in contents
	synced   bool
	finished bool
	health   sources.Health
}

func (r *reading) Replace(group string, rs []*resource.Resource, rejects ...sources.Reject) error {
	return r.ReplaceAll([]sources.Content{{Group: group, Resources: rs, Rejects: rejects}})
}

func (r *reading) ReplaceAll(contents []sources.Content) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range contents {
		if r.finished {
			break
		}
		i, again := r.places[c.Group]
		if !again {
			i, r.contents = len(r.contents), append(r.contents, c)
			r.places[c.Group] = i
		}
		r.contents[i] = c
	}
	return nil
}

func (r *reading) Groups() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Keys(r.places))
}

func (r *reading) Synced() { r.mu.Lock(); r.synced = true; r.mu.Unlock() }

// Report ends the run when it says something that is final.
func (r *reading) Report(h sources.Health) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.finished {
		return
	}
	r.health = h
	if h.State != sources.Starting && (r.synced || h.State == sources.Unreachable || h.State == sources.Denied) {
		r.finished = true
		r.done()
	}
}
