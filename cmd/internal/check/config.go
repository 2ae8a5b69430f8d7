package check

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	networking "istio.io/api/networking/v1alpha3"

	"tributary/aggregate"
	"tributary/config"
	"tributary/internal/words"
	"tributary/resource"
	"tributary/sources"
	"tributary/sources/file"
)

// Text looks at a text: a configuration of ours with the files that it names, or configuration objects. name is that of its
// file. With offline, a source of files that is not on this machine is no error. It returns what was not looked at.
func (l *Linter) Text(ctx context.Context, name string, text []byte, offline bool) (skipped []string, err error) {
	if config.Recognize(text) {
		cfg, err := config.Parse(name, text)
		return l.Config(ctx, name, cfg, err, offline)
	}
	options, err := sources.Texts{ForeignKinds: foreignNamed}.Options()
	if err != nil {
		return nil, err
	}
	content := sources.Decode(name, name, text, options)
	contents := []sources.Content{content}
	if l.Derive != nil {
		contents = file.DecodeDeriving(name, text, options, *l.Derive)
		content = contents[0]
	}
	if len(content.Resources)+len(content.Rejects)+len(content.Others)+content.Foreign == 0 {
		base := filepath.Base(name)
		if slices.ContainsFunc(config.DefaultPaths(), func(p string) bool { return filepath.Base(p) == base }) {
			cfg, err := config.Parse(name, text)
			return l.Config(ctx, name, cfg, err, offline) // one that says nothing is refused by serve, too
		}
		l.at(name, Warning, Empty, "nothing is in it: neither objects nor a configuration")
	}
	l.keep(name, text)
	l.Contents(contents...)
	return nil, nil
}

// Config looks at a configuration, or at the error of loading it, and at its sources, each whether or not another one can be read, as Text
// does at one that it recognizes.
func (l *Linter) Config(ctx context.Context, name string, cfg *config.Config, err error, offline bool) (skipped []string, _ error) {
	if bad, ok := errors.AsType[*config.Error](err); ok {
		l.problems(Error, bad.Problems)
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	l.problems(Warning, cfg.Warnings)
	if l.Files != nil {
		skipped = l.files(ctx, name, cfg, offline)
	}
	for _, s := range cfg.ConfigSources {
		settings, isFile := s.Settings.(*config.File)
		if !isFile && l.Connect == nil {
			l.unread = append(l.unread, s)
			skipped = append(skipped, fmt.Sprintf("source %s (%s): it is checked when it is read", s.Name, s.Shown()))
			continue
		}
		terms := Terms{Name: s.Name, Lenient: s.Validation == config.ValidationWarn, Precedence: s.Precedence}
		_, terms.LenientMetadata = s.Settings.(*config.XDS)
		if e := s.Merge.Endpoints; e != nil {
			terms.Merge = &aggregate.Merge{Locality: e.Locality, Priority: e.Priority}
		}
		if terms.Transform, err = s.Rules(); err != nil {
			return nil, fmt.Errorf("source %s: %w", s.Name, err)
		}
		if !isFile {
			if err := l.connect(ctx, name, s, terms); err != nil {
				return nil, err
			}
			continue
		}
		switch read, err := l.Address(ctx, s.Address, settings.Source(), terms); {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case err != nil && offline:
			l.unread = append(l.unread, s)
			skipped = append(skipped, fmt.Sprintf("source %s (%s): %v", s.Name, s.Shown(), err))
		case err != nil:
			l.unreadable(name, s, Unreadable, err)
		case !read:
			l.nothing(name, fmt.Sprintf("source %s (%s): nothing is read from it", s.Name, s.Shown()), 0)
		}
	}
	return skipped, nil
}

// unreadable notes that a source of a configuration cannot be read.
func (l *Linter) unreadable(name string, s config.Source, rule Rule, err error) {
	l.unread, l.unreadErrors = append(l.unread, s), l.unreadErrors+1
	l.at(name, Error, rule, fmt.Sprintf("source %s (%s): %v", s.Name, s.Shown(), err))
}

func (l *Linter) problems(severity Severity, all []config.Problem) {
	for _, p := range all {
		l.at(p.Place(), severity, Configuration, p.Text())
	}
}

// files looks at the files that a configuration names for its own ports and for proofs. With offline, one that is not on this machine is no
// error, but returned.
func (l *Linter) files(ctx context.Context, name string, cfg *config.Config, offline bool) (skipped []string) {
	wrong, doubts := l.Files(ctx, cfg)
	for _, err := range wrong {
		bad, ok := errors.AsType[*config.Error](err)
		switch {
		case offline && errors.Is(err, fs.ErrNotExist):
			skipped = append(skipped, err.Error())
		case ok:
			l.problems(Error, bad.Problems)
		default:
			l.at(name, Error, Configuration, err.Error())
		}
	}
	l.problems(Warning, doubts)
	return skipped
}

// connect looks at what a source has that is no file, as at files, and notes how much of it would be served. A source that cannot be read
// is a finding.
func (l *Linter) connect(ctx context.Context, name string, s config.Source, terms Terms) error {
	source, err := l.Connect(s)
	if err != nil {
		return fmt.Errorf("source %s: %w", s.Name, err)
	}
	if of, asks := source.(interface {
		Rights(ctx context.Context) (lacks, roles string, err error)
	}); asks {
		if lacks, roles, err := of.Rights(ctx); err == nil && lacks != "" { // what else is wrong is found by reading
			l.at(name, Warning, Denied, fmt.Sprintf("source %s (%s): %s", s.Name, s.Shown(), lacks))
			l.Findings[len(l.Findings)-1].Fix = roles
		}
	}
	contents, said, err := ReadRegistry(ctx, source)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		rule := Unreadable
		if unread, ok := errors.AsType[*UnreadError](err); ok && unread.State == sources.Denied {
			rule = Denied
		}
		l.unreadable(name, s, rule, err)
		return nil
	}
	before, left := len(l.Findings), 0
	slices.SortFunc(contents, func(a, b sources.Content) int { return strings.Compare(a.Group, b.Group) })
	for n := range contents {
		left += len(contents[n].LeftOut)
		for i := range contents[n].Rejects {
			place := &contents[n].Rejects[i].Origin.Place
			*place = cmp.Or(*place, contents[n].Group, s.Shown())
		}
	}
	served := l.source(terms, contents).table.Snapshot()
	endpoints := 0
	for r := range served.List(resource.ServiceEntry, "") {
		if spec, err := r.Spec(); err == nil {
			if entry, is := spec.(*networking.ServiceEntry); is {
				endpoints += len(entry.Endpoints)
			}
		}
	}
	found := make(map[Severity]int)
	for _, f := range l.Findings[before:] {
		found[f.Severity]++
	}
	counted := []string{fmt.Sprintf("source %s (%s): %s with %s would be served", s.Name, s.Shown(),
		words.Count(served.Len(), "object", "objects"), words.Count(endpoints, "endpoint", "endpoints"))}
	for _, of := range []struct {
		n         int
		one, many string
	}{{found[Error], "error", "errors"}, {left, "instance is left out", "instances are left out"}, {found[Warning], "warning", "warnings"}} {
		if of.n > 0 {
			counted = append(counted, words.Count(of.n, of.one, of.many))
		}
	}
	line := strings.Join(counted, ", ")
	if said != "" {
		line += ": " + strings.ReplaceAll(said, "\n", "; ")
	}
	l.Connected = append(l.Connected, line)
	return nil
}

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
