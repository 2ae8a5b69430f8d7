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

// Text checks a configuration of tributary with the files that it names, or the objects in a text. name is the file's
// name. With offline, a source of files that is not on this machine is no error. Text returns the sources that it
// skipped, with reasons.
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
			return l.Config(ctx, name, cfg, err, offline) // serve rejects an empty configuration, too
		}
		l.reportAt(name, Warning, Empty, "nothing is in it: neither objects nor a configuration")
	}
	l.keepText(name, text)
	l.checkSource(Terms{}, contents)
	return nil, nil
}

// Config checks a configuration and its sources, or reports the error of loading it. It checks each source even if
// another cannot be read.
func (l *Linter) Config(
	ctx context.Context, name string, cfg *config.Config, err error, offline bool,
) (skipped []string, _ error) {
	if bad, ok := errors.AsType[*config.Error](err); ok {
		l.reportProblems(Error, bad.Problems)
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	l.reportProblems(Warning, cfg.Warnings)
	if l.Files != nil {
		skipped = l.checkFiles(ctx, name, cfg, offline)
	}
	for _, source := range cfg.ConfigSources {
		settings, isFile := source.Settings.(*config.File)
		if !isFile && l.Connect == nil {
			l.unread = append(l.unread, source)
			skipped = append(skipped, fmt.Sprintf("source %s (%s): it is checked when it is read", source.Name, source.Shown()))
			continue
		}
		terms := Terms{Name: source.Name, Lenient: source.Validation == config.ValidationWarn, Precedence: source.Precedence}
		_, terms.LenientMetadata = source.Settings.(*config.XDS)
		if endpoints := source.Merge.Endpoints; endpoints != nil {
			terms.Merge = &aggregate.Merge{Locality: endpoints.Locality, Priority: endpoints.Priority}
		}
		if terms.Transform, err = source.Rules(); err != nil {
			return nil, fmt.Errorf("source %s: %w", source.Name, err)
		}
		if !isFile {
			if err := l.checkConnected(ctx, name, source, terms); err != nil {
				return nil, err
			}
			continue
		}
		switch read, err := l.Address(ctx, source.Address, settings.Source(), terms); {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case err != nil && offline:
			l.unread = append(l.unread, source)
			skipped = append(skipped, fmt.Sprintf("source %s (%s): %v", source.Name, source.Shown(), err))
		case err != nil:
			l.reportUnreadable(name, source, Unreadable, err)
		case !read:
			l.reportEmpty(name, fmt.Sprintf("source %s (%s): nothing is read from it", source.Name, source.Shown()), 0)
		}
	}
	return skipped, nil
}

// reportUnreadable reports a source of a configuration that cannot be read.
func (l *Linter) reportUnreadable(name string, s config.Source, rule Rule, err error) {
	l.unread, l.unreadErrors = append(l.unread, s), l.unreadErrors+1
	l.reportAt(name, Error, rule, fmt.Sprintf("source %s (%s): %v", s.Name, s.Shown(), err))
}

func (l *Linter) reportProblems(severity Severity, problems []config.Problem) {
	for _, p := range problems {
		l.reportAt(p.Place(), severity, Configuration, p.Text())
	}
}

// checkFiles checks the files that a configuration names for listeners and for clients' credentials. With offline, it
// returns the files that are not on this machine instead of reporting them.
func (l *Linter) checkFiles(ctx context.Context, name string, cfg *config.Config, offline bool) (skipped []string) {
	errs, warnings := l.Files(ctx, cfg)
	for _, err := range errs {
		bad, ok := errors.AsType[*config.Error](err)
		switch {
		case offline && errors.Is(err, fs.ErrNotExist):
			skipped = append(skipped, err.Error())
		case ok:
			l.reportProblems(Error, bad.Problems)
		default:
			l.reportAt(name, Error, Configuration, err.Error())
		}
	}
	l.reportProblems(Warning, warnings)
	return skipped
}

// checkConnected reads a source that has no files, checks its objects, and counts those that would be served. A source
// that cannot be read is a finding.
func (l *Linter) checkConnected(ctx context.Context, name string, configured config.Source, terms Terms) error {
	source, err := l.Connect(configured)
	if err != nil {
		return fmt.Errorf("source %s: %w", configured.Name, err)
	}
	if cluster, checksRights := source.(interface {
		Rights(ctx context.Context) (lacks, roles string, err error)
	}); checksRights {
		if lacks, roles, err := cluster.Rights(ctx); err == nil && lacks != "" { // reading the source finds other errors
			l.reportAt(name, Warning, Denied, fmt.Sprintf("source %s (%s): %s", configured.Name, configured.Shown(), lacks))
			l.Findings[len(l.Findings)-1].Fix = roles
		}
	}
	contents, health, err := readRegistry(ctx, source)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		rule := Unreadable
		if health.State == sources.Denied {
			rule = Denied
		}
		l.reportUnreadable(name, configured, rule, err)
		return nil
	}
	before, leftOut := len(l.Findings), 0
	slices.SortFunc(contents, func(a, b sources.Content) int { return strings.Compare(a.Group, b.Group) })
	for index := range contents {
		leftOut += len(contents[index].LeftOut)
		for i := range contents[index].Rejects {
			place := &contents[index].Rejects[i].Origin.Place
			*place = cmp.Or(*place, contents[index].Group, configured.Shown())
		}
	}
	served := l.checkSource(terms, contents).table.Snapshot()
	endpoints := 0
	for object := range served.List(resource.ServiceEntry, "") {
		if spec, err := object.Spec(); err == nil {
			if entry, isEntry := spec.(*networking.ServiceEntry); isEntry {
				endpoints += len(entry.Endpoints)
			}
		}
	}
	bySeverity := make(map[Severity]int)
	for _, finding := range l.Findings[before:] {
		bySeverity[finding.Severity]++
	}
	counted := []string{fmt.Sprintf("source %s (%s): %s with %s would be served", configured.Name, configured.Shown(),
		words.Count(served.Len(), "object", "objects"), words.Count(endpoints, "endpoint", "endpoints"))}
	count := func(number int, singular, plural string) {
		if number > 0 {
			counted = append(counted, words.Count(number, singular, plural))
		}
	}
	count(bySeverity[Error], "error", "errors")
	count(leftOut, "instance is left out", "instances are left out")
	count(bySeverity[Warning], "warning", "warnings")
	line := strings.Join(counted, ", ")
	if health.Message != "" {
		line += ": " + strings.ReplaceAll(health.Message, "\n", "; ")
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

// ReadFiles reads the file source of an address and settings. It returns the contents, and the source's message if some
// files could not be read. If no file could be read, that is an error.
func ReadFiles(
	ctx context.Context, address string, settings file.Settings,
) (contents []sources.Content, degraded string, err error) {
	settings.PartialStart = true // an unreadable file is reported, not waited for
	source, err := file.New(address, settings)
	if err != nil {
		return nil, "", err
	}
	firstReading, err := firstRead(ctx, source)
	switch {
	case !errors.Is(err, context.Canceled):
		return nil, "", err
	case !firstReading.finished: // ctx ended from outside
		return nil, "", ctx.Err()
	case firstReading.health.State == sources.Unreachable, firstReading.health.State == sources.Denied:
		return nil, "", errors.New(firstReading.health.Message)
	case firstReading.health.State == sources.Degraded:
		return firstReading.contents, firstReading.health.Message, nil
	}
	return firstReading.contents, "", nil
}

const registryPatience = 30 * time.Second

// readRegistry reads a source as the server does when it starts, and returns its contents and its health. The error
// says why it cannot be read.
func readRegistry(
	ctx context.Context, source sources.Source,
) (contents []sources.Content, health sources.Health, err error) {
	ctx, cancel := context.WithTimeout(ctx, registryPatience)
	defer cancel()
	reading, err := firstRead(ctx, source)
	switch {
	case !reading.finished && errors.Is(ctx.Err(), context.DeadlineExceeded):
		err = fmt.Errorf("it is not read after %s: %s, %s", registryPatience, reading.health.State, reading.health.Message)
	case !reading.finished:
	case !reading.synced:
		err = errors.New(reading.health.Message)
	default:
		err = nil // that of the end of the run
	}
	return reading.contents, reading.health, err
}

// firstRead runs a source until it has published all groups, or reports that it cannot. The error is the error of Run.
func firstRead(ctx context.Context, source sources.Source) (*firstReading, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	reading := &firstReading{stop: cancel, places: make(map[string]int)}
	err := source.Run(ctx, reading)
	reading.mu.Lock()
	defer reading.mu.Unlock()
	return reading, err
}

// firstReading is a sink that keeps the first contents of a source. It ends the run when they are complete, or when the
// source cannot be read.
type firstReading struct {
	stop func()

	mu       sync.Mutex
	contents []sources.Content
	places   map[string]int // indexes in contents, by group
	synced   bool
	finished bool
	health   sources.Health
}

func (r *firstReading) Replace(group string, rs []*resource.Resource, rejects ...sources.Reject) error {
	return r.ReplaceAll([]sources.Content{{Group: group, Resources: rs, Rejects: rejects}})
}

func (r *firstReading) ReplaceAll(contents []sources.Content) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, content := range contents {
		if r.finished {
			break
		}
		i, duplicate := r.places[content.Group]
		if !duplicate {
			i, r.contents = len(r.contents), append(r.contents, content)
			r.places[content.Group] = i
		}
		r.contents[i] = content
	}
	return nil
}

func (r *firstReading) Groups() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Keys(r.places))
}

func (r *firstReading) Synced() { r.mu.Lock(); r.synced = true; r.mu.Unlock() }

// Report ends the run when the source is synced or failed.
func (r *firstReading) Report(health sources.Health) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.finished {
		return
	}
	r.health = health
	if health.State != sources.Starting && (r.synced || health.State == sources.Unreachable ||
		health.State == sources.Denied) {
		r.finished = true
		r.stop()
	}
}
