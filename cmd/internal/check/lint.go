// Package check looks at what a server reads and needs before it does: files and sources of mesh configuration as they are read and checked
// by the server (Linter), references between objects, the configuration, the machine and the istiod behind it (Doctor). It
// also writes a first configuration (InitialConfig), reads what is to be written to a store (ReadManifest), and packs a report without
// secrets (WriteBundle).
package check

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"tributary/aggregate"
	"tributary/config"
	"tributary/internal/words"
	"tributary/memstore"
	"tributary/resource"
	"tributary/sources"
	"tributary/sources/derive"
	"tributary/sources/file"
	"tributary/sources/transform"
)

// Finding is one thing that is wrong. Kind, Namespace and Name are empty if they cannot be told.
type Finding struct {
	Place     string        `json:"place"` // file:line or file:line:column
	Kind      resource.Kind `json:"kind,omitempty"`
	Namespace string        `json:"namespace,omitempty"`
	Name      string        `json:"name,omitempty"`
	Severity  Severity      `json:"severity"`
	Rule      Rule          `json:"rule"`
	Message   string        `json:"message"`
	Fix       string        `json:"fix,omitempty"` // lines of what to create, where that is known
}

// ByPlace orders findings by file and line.
func ByPlace(a, b Finding) int {
	fileA, lineA, _ := splitPlace(a.Place)
	fileB, lineB, _ := splitPlace(b.Place)
	return cmp.Or(strings.Compare(fileA, fileB), cmp.Compare(lineA, lineB))
}

// Severity says what a finding means for what is served, and for what Doctor looks at.
type Severity string

// The severities.
const (
	Error   Severity = "error"   // the object is not served, or refers to what is certainly not there
	Warning Severity = "warning" // it is served
	Note    Severity = "note"    // it is none of ours, or has a part that nothing uses
	Fine    Severity = "ok"      // Doctor has found nothing wrong
	Skipped Severity = "skipped" // Doctor did not look
)

// Rule is the sort of a finding. That of objects that compete is the one of package conflicts, and that of references the code of
// package references.
type Rule string

// The rules of this package.
const (
	Unreadable    Rule = "unreadable"    // a file or directory
	Denied        Rule = "denied"        // a source that refuses us
	Malformed     Rule = "malformed"     // a document, or an object that cannot be told or sent
	Invalid       Rule = "invalid"       // by Istio's validation
	Duplicate     Rule = "duplicate"     // more than one object of a key
	Configuration Rule = "configuration" // of tributary itself
	Empty         Rule = "empty"         // nothing is there
	Foreign       Rule = "foreign"       // of another API
	WithoutEffect Rule = "no-effect"     // on the clients that it is for
	Rejected      Rule = "rejected"      // by an Envoy
)

// String returns the finding as one line: "file:line: Kind ns/name: message".
func (f Finding) String() string {
	text := f.Place + ": " + f.subject()
	if f.Severity != Error {
		text += string(f.Severity) + ": "
	}
	return text + strings.ReplaceAll(f.Message, "\n", "; ")
}

func (f Finding) key() resource.Key {
	return resource.Key{Kind: f.Kind, Namespace: f.Namespace, Name: f.Name}
}

// subject begins what is said of an object.
func (f Finding) subject() string {
	if f.Kind == "" {
		return ""
	}
	return strings.TrimSpace(f.key().String()) + ": "
}

// Linter looks at one path after another. An object that is there twice is a finding, too: within a path an error, since
// one source can serve it but once, and a warning if another path has it, since sources may shadow each other on purpose.
type Linter struct {
	Findings []Finding
	Objects  int      // looked at and found right, but for warnings
	Foreign  int      // objects of other APIs, which were passed over
	Skipped  []string // files that are not read, as their names do not end in what is

	// Derive has objects of Kubernetes' APIs become Istio's in files that no configuration names; nil passes over them.
	Derive *derive.Options
	// Files reads the files that a configuration names for its own ports and for proofs, and returns what is wrong with them, and what is
	// hardly meant.
	Files func(context.Context, *config.Config) (wrong []error, doubts []config.Problem)
	// Connect makes a source that is no file, which is read then; nil has such sources not looked at. Connected says what each has.
	Connect   func(config.Source) (sources.Source, error)
	Connected []string
	Unchecked string // which references Analyze did not check, and why

	server       *server         // nil unless Served was called
	unread       []config.Source // the sources that were not read, or could not be
	unreadErrors int             // findings of that they could not be
	looks        []*look
	merged       memstore.Reader         // all of them, as the server merges them
	seen         map[resource.Key]string // where an object was seen first
	texts        map[string][]byte       // of files
}

// Terms are what the configuration of a source says of its objects. The zero value is that of a path alone.
type Terms struct {
	Name                     string
	Transform                *transform.Rules
	Lenient, LenientMetadata bool
	Foreign                  Severity // of objects of other APIs; Note if empty
	Precedence               int
	Merge                    *aggregate.Merge
}

// look is what was found right in one path.
type look struct {
	terms Terms
	seen  map[resource.Key]string // where
	table memstore.Table
}

// Path looks at a file or a directory tree.
func (l *Linter) Path(ctx context.Context, path string) error {
	read, err := l.Address(ctx, FileAddress(path), file.Settings{Derive: l.Derive}, Terms{})
	if err != nil {
		return err
	}
	skipped := notRead(path)
	l.Skipped = append(l.Skipped, skipped...)
	if !read {
		l.nothing(path, "nothing is read from it", len(skipped))
	}
	return nil
}

func (l *Linter) nothing(place, what string, skipped int) {
	if skipped > 0 {
		what += ": " + words.Count(skipped, "file is there whose name does", "files are there whose names do") +
			" not end in .yaml, .yml or .json"
	}
	l.at(place, Warning, Empty, what)
}

// notRead returns the files of a tree that have other names than those that are read. What is hidden is meant to be.
func notRead(root string) (all []string) {
	_ = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error { // what cannot be walked was told of
		if err == nil && path != root && d.IsDir() && file.Hidden(d.Name()) {
			return fs.SkipDir
		}
		if err == nil && d.Type().IsRegular() && !file.Hidden(d.Name()) && !file.Reads(d.Name()) {
			all = append(all, path)
		}
		return nil //nolint:nilerr // the rest can be walked
	})
	return all
}

// Address looks at what the file source of an address and settings reads. It reports whether that is anything.
func (l *Linter) Address(ctx context.Context, address string, settings file.Settings, terms Terms) (read bool, err error) {
	terms.Foreign = foreignSeverity(settings.ForeignKinds)
	settings.ForeignKinds = foreignNamed
	contents, degraded, err := ReadFiles(ctx, address, settings)
	if err != nil {
		return false, err
	}
	if degraded != "" {
		l.at(address, Error, Unreadable, degraded)
	}
	l.source(terms, contents)
	return degraded != "" || slices.ContainsFunc(contents, func(c sources.Content) bool {
		return len(c.Resources)+len(c.Rejects)+len(c.Warnings)+len(c.Others)+c.Foreign > 0
	}), nil
}

// Contents looks at what was read from one path.
func (l *Linter) Contents(contents ...sources.Content) { l.source(Terms{}, contents) }

// source looks at what was read from one source, and returns what was found right.
func (l *Linter) source(terms Terms, contents []sources.Content) *look {
	at := &look{terms: terms, seen: make(map[resource.Key]string)}
	l.looks = append(l.looks, at)
	for _, c := range contents {
		l.content(at, c)
	}
	at.table.MarkSynced()
	return at
}

func (l *Linter) content(at *look, c sources.Content) {
	l.Foreign += c.Foreign
	for _, w := range c.Warnings {
		place, message, found := strings.Cut(w, ": ")
		if !found {
			place, message = cmp.Or(c.Group, at.terms.Name), w
		}
		l.at(place, Warning, Malformed, message)
	}
	for _, r := range c.Rejects {
		if r.Foreign && !r.Derives && len(resource.ErrorsIn(r.Err)) == 1 { // which says no more than that
			l.foreign(at.terms, r)
			continue
		}
		// What is not identified may be an object that is taken.
		_, known := resource.SchemaOf(r.Key.Kind)
		if key, taken := at.terms.Transform.Key(r.Key); taken || !known || r.Key.Name == "" {
			l.add(Error, key, r.Origin.Place, "", r.Err)
		}
	}
	for _, r := range c.Resources {
		if r = at.terms.Transform.Apply(r); r == nil {
			continue // left out
		}
		warnings, err := resource.Validate(r)
		switch {
		case at.terms.Lenient:
			warnings, err = resource.Lenient(warnings, err)
		case at.terms.LenientMetadata:
			warnings, err = resource.LenientMetadata(warnings, err)
		}
		note := ""
		if applied := r.Origin().Rules; applied != "" {
			note = fmt.Sprintf(" (as it is after the transforms: %s)", applied)
		}
		l.add(Error, r.Key(), r.Origin().Place, note, err)
		l.add(Warning, r.Key(), r.Origin().Place, note, warnings.Err())
		l.add(Warning, r.Key(), r.Origin().Place, note, resource.CheckProducts(r, 0))
		if err == nil && l.unique(at, r) {
			at.table.Apply([]*resource.Resource{r}, nil)
		}
	}
}

// unique notes where the object of r's key was seen, and reports whether it is the first of its source.
func (l *Linter) unique(at *look, r *resource.Resource) bool {
	key, place := r.Key(), r.Origin().Place
	if first, seen := at.seen[key]; seen {
		l.find(Error, Duplicate, key, place, fmt.Sprintf("already defined at %s, which wins", first))
		return false
	}
	at.seen[key] = place
	switch first, seen := l.seen[key]; {
	case !seen:
		if l.seen == nil {
			l.seen = make(map[resource.Key]string)
		}
		l.seen[key] = place
		l.Objects++
	case !samePlace(first, place):
		l.find(Warning, Duplicate, key, place, fmt.Sprintf("also defined at %s", first))
	}
	return true
}

// samePlace reports whether two places are one, looked at under different names.
func samePlace(a, b string) bool {
	absA, errA := filepath.Abs(a)
	absB, errB := filepath.Abs(b)
	return errA == nil && errB == nil && absA == absB
}

// add notes err, which is about the object of key at place unless it says so better itself, each with a note.
func (l *Linter) add(severity Severity, key resource.Key, place, note string, err error) {
	if err == nil {
		return
	}
	all := resource.ErrorsIn(err)
	if len(all) == 0 {
		message := strings.TrimPrefix(err.Error(), place+": ")
		all = resource.Errors{{Key: key, Origin: resource.Origin{Place: place}, Err: errors.New(message)}}
	}
	for _, e := range all {
		rule := Malformed
		if e.Rule {
			rule = Invalid
		}
		l.find(severity, rule, e.Key, e.Origin.Place, e.Err.Error()+note)
	}
}

// at notes what is wrong with no object.
func (l *Linter) at(place string, severity Severity, rule Rule, message string) {
	l.find(severity, rule, resource.Key{}, place, message)
}

func (l *Linter) find(severity Severity, rule Rule, key resource.Key, place, message string) {
	l.Findings = append(l.Findings, Finding{
		Place: place, Kind: key.Kind, Namespace: key.Namespace, Name: key.Name, Severity: severity, Rule: rule, Message: message,
	})
}

// foreignNamed has objects of other APIs named one by one; what that means is for the linter to say.
const foreignNamed = "error"

// foreignSeverity is what the setting foreignKinds of a source makes of objects of other APIs.
func foreignSeverity(setting string) Severity {
	switch setting {
	case "error":
		return Error
	case "warn":
		return Warning
	default:
		return Note
	}
}

func (l *Linter) foreign(terms Terms, r sources.Reject) {
	severity := terms.Foreign
	if severity == "" {
		severity = Note
	}
	if severity != Error {
		l.Foreign++
	}
	for _, e := range resource.ErrorsIn(r.Err) {
		l.find(severity, Foreign, r.Key, e.Origin.Place, e.Err.Error())
	}
}

// The part of SARIF 2.1.0 (https://docs.oasis-open.org/sarif/sarif/v2.1.0/) that says what was found, for the services that
// show findings beside the lines of a change.
type (
	sarifLog struct {
		Schema  string     `json:"$schema"`
		Version string     `json:"version"`
		Runs    []sarifRun `json:"runs"`
	}
	sarifRun struct {
		Tool struct {
			Driver struct {
				Name    string      `json:"name"`
				Version string      `json:"version"`
				Rules   []sarifRule `json:"rules"`
			} `json:"driver"`
		} `json:"tool"`
		Results []sarifResult `json:"results"`
	}
	sarifRule struct {
		ID string `json:"id"`
	}
	sarifResult struct {
		RuleID  string `json:"ruleId"`
		Level   string `json:"level"`
		Message struct {
			Text string `json:"text"`
		} `json:"message"`
		Locations []sarifLocation `json:"locations,omitempty"`
	}
	sarifLocation struct {
		Physical struct {
			Artifact struct {
				URI string `json:"uri"`
			} `json:"artifactLocation"`
			Region *sarifRegion `json:"region,omitempty"`
		} `json:"physicalLocation"`
	}
	sarifRegion struct {
		Line   int `json:"startLine"`
		Column int `json:"startColumn,omitempty"`
	}
)

// SARIF returns findings as a value that is written in JSON. version is that of this program.
func SARIF(findings []Finding, version string) any {
	run := sarifRun{Results: []sarifResult{}}
	driver := &run.Tool.Driver
	driver.Name, driver.Version, driver.Rules = "tributary", version, []sarifRule{}
	for _, f := range findings {
		result := sarifResult{RuleID: string(f.Rule), Level: string(f.Severity)}
		result.Message.Text = f.subject() + f.Message
		if name, line, column := splitPlace(f.Place); name != "" {
			result.Locations = make([]sarifLocation, 1)
			physical := &result.Locations[0].Physical
			if physical.Artifact.URI = filepath.ToSlash(name); line > 0 {
				physical.Region = &sarifRegion{line, column}
			}
		}
		run.Results = append(run.Results, result)
		if rule := (sarifRule{string(f.Rule)}); !slices.Contains(driver.Rules, rule) {
			driver.Rules = append(driver.Rules, rule)
		}
	}
	return sarifLog{"https://json.schemastore.org/sarif-2.1.0.json", "2.1.0", []sarifRun{run}}
}

// splitPlace takes a place apart: file:line:column, of which the numbers are 0 if they are not there.
func splitPlace(place string) (name string, line, column int) {
	name = place
	var numbers []int
	for len(numbers) < 2 {
		i := strings.LastIndexByte(name, ':')
		if i < 0 {
			break
		}
		n, err := strconv.Atoi(name[i+1:])
		if err != nil || n < 1 {
			break
		}
		name, numbers = name[:i], append(numbers, n)
	}
	switch len(numbers) {
	case 2:
		return name, numbers[1], numbers[0]
	case 1:
		return name, numbers[0], 0
	}
	return name, 0, 0
}
