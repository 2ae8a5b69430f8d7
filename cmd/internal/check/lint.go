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

// Finding is a defect. Kind, Namespace and Name are empty if the object cannot be identified.
type Finding struct {
	Place     string        `json:"place"` // file:line or file:line:column
	Kind      resource.Kind `json:"kind,omitempty"`
	Namespace string        `json:"namespace,omitempty"`
	Name      string        `json:"name,omitempty"`
	Severity  Severity      `json:"severity"`
	Rule      Rule          `json:"rule"`
	Message   string        `json:"message"`
	Fix       string        `json:"fix,omitempty"` // lines of objects to create, if known
}

// ByPlace orders findings by file and line.
func ByPlace(a, b Finding) int {
	fileA, lineA, _ := splitPlace(a.Place)
	fileB, lineB, _ := splitPlace(b.Place)
	return cmp.Or(strings.Compare(fileA, fileB), cmp.Compare(lineA, lineB))
}

// Severity says whether a finding keeps an object from being served, or the result of a check of Doctor.
type Severity string

// The severities.
const (
	Error   Severity = "error"   // the object is not served, or refers to a missing object
	Warning Severity = "warning" // the object is served
	Note    Severity = "note"    // an object of another API, or an unused part of an object
	Fine    Severity = "ok"      // Doctor found no defect
	Skipped Severity = "skipped" // Doctor did not check
)

// Rule is the sort of a finding. Conflicts have the rules of package conflicts, references the codes of package
// references.
type Rule string

// The rules of this package.
const (
	Unreadable    Rule = "unreadable"    // a file, directory or source
	Denied        Rule = "denied"        // a source that denies access
	Malformed     Rule = "malformed"     // a document, or an object that cannot be identified or sent
	Invalid       Rule = "invalid"       // an object that Istio's validation refuses
	Duplicate     Rule = "duplicate"     // more than one object of a key
	Configuration Rule = "configuration" // a configuration of tributary
	Empty         Rule = "empty"         // a file or source without objects
	Foreign       Rule = "foreign"       // an object of another API
	WithoutEffect Rule = "no-effect"     // a field that clients ignore
	Rejected      Rule = "rejected"      // an Envoy rejects a resource
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

// subject names the object at the beginning of a line.
func (f Finding) subject() string {
	if f.Kind == "" {
		return ""
	}
	return strings.TrimSpace(f.key().String()) + ": "
}

// Linter checks one path after another. A duplicate object is a finding, too: within a path an error, since a source
// serves only the first, and a warning if another path has it, since sources may shadow each other on purpose.
type Linter struct {
	Findings []Finding
	Objects  int      // valid ones, with or without warnings
	Foreign  int      // ignored objects of other APIs
	Skipped  []string // files that are not read because of their extension

	// Derive says how objects of Kubernetes' APIs become Istio's in files that no configuration names; nil ignores them.
	Derive *derive.Options
	// Files reads the files that a configuration names for listeners and for clients' credentials.
	Files func(context.Context, *config.Config) (errs []error, warnings []config.Problem)
	// Connect makes a source that is no file, so that the linter can read it; nil skips such sources. Connected has a
	// line about the content of each.
	Connect   func(config.Source) (sources.Source, error)
	Connected []string
	Unchecked string // the references that CheckReferences did not check, with the reason

	server       *server         // nil unless AddServed was called
	unread       []config.Source // the sources that were not read, or could not be
	unreadErrors int             // findings about unreadable sources
	validated    []*validObjects
	merged       memstore.Reader         // all checked objects, as the server merges them
	places       map[resource.Key]string // where an object was seen first; a merged object has none
	texts        map[string][]byte       // of files
}

// Terms are the settings of a source that concern the check of its objects. A path without a configuration has the zero
// value.
type Terms struct {
	Name                     string
	Transform                *transform.Rules
	Lenient, LenientMetadata bool
	Foreign                  Severity // of objects of other APIs; Note if empty
	Precedence               int
	Merge                    *aggregate.Merge
}

// validObjects are the valid objects of a path.
type validObjects struct {
	terms  Terms
	places map[resource.Key]string // first places
	table  memstore.Table
}

// Path checks a file or a directory tree.
func (l *Linter) Path(ctx context.Context, path string) error {
	read, err := l.Address(ctx, FileAddress(path), file.Settings{Derive: l.Derive}, Terms{})
	if err != nil {
		return err
	}
	skipped := skippedFiles(path)
	l.Skipped = append(l.Skipped, skipped...)
	if !read {
		l.reportEmpty(path, "nothing is read from it", len(skipped))
	}
	return nil
}

func (l *Linter) reportEmpty(place, message string, skipped int) {
	if skipped > 0 {
		message += ": " + words.Count(skipped, "file is there whose name does", "files are there whose names do") +
			" not end in .yaml, .yml or .json"
	}
	l.reportAt(place, Warning, Empty, message)
}

// skippedFiles returns the files of a tree that are not read because of their extension, without hidden files.
func skippedFiles(root string) (skipped []string) {
	// The source reports a directory that cannot be read.
	_ = filepath.WalkDir(root, func(path string, dirEntry fs.DirEntry, err error) error {
		if err == nil && path != root && dirEntry.IsDir() && file.Hidden(dirEntry.Name()) {
			return fs.SkipDir
		}
		if err == nil && dirEntry.Type().IsRegular() && !file.Hidden(dirEntry.Name()) && !file.Reads(dirEntry.Name()) {
			skipped = append(skipped, path)
		}
		return nil //nolint:nilerr // other directories can be walked
	})
	return skipped
}

// Address checks the objects of the file source of an address and settings, and reports whether it has any.
func (l *Linter) Address(
	ctx context.Context, address string, settings file.Settings, terms Terms,
) (read bool, err error) {
	terms.Foreign = foreignSeverity(settings.ForeignKinds)
	settings.ForeignKinds = foreignNamed
	contents, degraded, err := ReadFiles(ctx, address, settings)
	if err != nil {
		return false, err
	}
	if degraded != "" {
		l.reportAt(address, Error, Unreadable, degraded)
	}
	l.checkSource(terms, contents)
	return degraded != "" || slices.ContainsFunc(contents, func(c sources.Content) bool {
		return len(c.Resources)+len(c.Rejects)+len(c.Warnings)+len(c.Others)+c.Foreign > 0
	}), nil
}

// checkSource checks the contents of a source, and returns the valid objects.
func (l *Linter) checkSource(terms Terms, contents []sources.Content) *validObjects {
	objects := &validObjects{terms: terms, places: make(map[resource.Key]string)}
	l.validated = append(l.validated, objects)
	for _, c := range contents {
		l.checkContent(objects, c)
	}
	objects.table.MarkSynced()
	return objects
}

func (l *Linter) checkContent(objects *validObjects, content sources.Content) {
	l.Foreign += content.Foreign
	for _, warning := range content.Warnings {
		place, message, hasPlace := strings.Cut(warning, ": ")
		if !hasPlace {
			place, message = cmp.Or(content.Group, objects.terms.Name), warning
		}
		l.reportAt(place, Warning, Malformed, message)
	}
	for _, reject := range content.Rejects {
		if reject.Foreign && !reject.Derives && len(resource.ErrorsIn(reject.Err)) == 1 { // it has no other error
			l.reportForeign(objects.terms, reject)
			continue
		}
		// An unidentified object may be an object that the transforms include.
		_, served := resource.SchemaOf(reject.Key.Kind)
		if key, taken := objects.terms.Transform.Key(reject.Key); taken || !served || reject.Key.Name == "" {
			l.reportErrors(Error, key, reject.Origin.Place, "", reject.Err)
		}
	}
	for _, object := range content.Resources {
		if object = objects.terms.Transform.Apply(object); object == nil {
			continue // the transforms exclude it
		}
		warnings, err := resource.Validate(object)
		switch {
		case objects.terms.Lenient:
			warnings, err = resource.Lenient(warnings, err)
		case objects.terms.LenientMetadata:
			warnings, err = resource.LenientMetadata(warnings, err)
		}
		note := ""
		if applied := object.Origin().Rules; applied != "" {
			note = fmt.Sprintf(" (as it is after the transforms: %s)", applied)
		}
		l.reportErrors(Error, object.Key(), object.Origin().Place, note, err)
		l.reportErrors(Warning, object.Key(), object.Origin().Place, note, warnings.Err())
		l.reportErrors(Warning, object.Key(), object.Origin().Place, note, resource.CheckProducts(object, 0))
		if err == nil && l.recordPlace(objects, object) {
			objects.table.Apply([]*resource.Resource{object}, nil)
		}
	}
}

// recordPlace records the place of an object, and reports a duplicate. It returns whether the object is the first of
// its key in its source.
func (l *Linter) recordPlace(objects *validObjects, r *resource.Resource) (isFirst bool) {
	key, place := r.Key(), r.Origin().Place
	if first, duplicate := objects.places[key]; duplicate {
		l.report(Error, Duplicate, key, place, fmt.Sprintf("already defined at %s, which wins", first))
		return false
	}
	objects.places[key] = place
	switch first, duplicate := l.places[key]; {
	case !duplicate:
		if l.places == nil {
			l.places = make(map[resource.Key]string)
		}
		l.places[key] = place
		l.Objects++
	case !samePlace(first, place):
		l.report(Warning, Duplicate, key, place, fmt.Sprintf("also defined at %s", first))
	}
	return true
}

// samePlace reports whether two places name the same file in different ways.
func samePlace(a, b string) bool {
	absA, errA := filepath.Abs(a)
	absB, errB := filepath.Abs(b)
	return errA == nil && errB == nil && absA == absB
}

// reportErrors reports each error in err with a note. An error that names no object is about the object of key at
// place.
func (l *Linter) reportErrors(severity Severity, key resource.Key, place, note string, err error) {
	if err == nil {
		return
	}
	details := resource.ErrorsIn(err)
	if len(details) == 0 {
		message := strings.TrimPrefix(err.Error(), place+": ")
		details = resource.Errors{{Key: key, Origin: resource.Origin{Place: place}, Err: errors.New(message)}}
	}
	for _, detail := range details {
		rule := Malformed
		if detail.Rule {
			rule = Invalid
		}
		l.report(severity, rule, detail.Key, detail.Origin.Place, detail.Err.Error()+note)
	}
}

// reportAt reports a defect that concerns no object.
func (l *Linter) reportAt(place string, severity Severity, rule Rule, message string) {
	l.report(severity, rule, resource.Key{}, place, message)
}

func (l *Linter) report(severity Severity, rule Rule, key resource.Key, place, message string) {
	l.Findings = append(l.Findings, Finding{
		Place: place, Kind: key.Kind, Namespace: key.Namespace, Name: key.Name, Severity: severity, Rule: rule,
		Message: message,
	})
}

// foreignNamed makes a source list objects of other APIs as rejects. The linter decides their severity.
const foreignNamed = "error"

// foreignSeverity returns the severity of objects of other APIs, by the setting foreignKinds of a source.
func foreignSeverity(setting string) Severity {
	switch setting {
	case "error":
		return Error
	case "warn":
		return Warning
	}
	return Note
}

func (l *Linter) reportForeign(terms Terms, reject sources.Reject) {
	severity := cmp.Or(terms.Foreign, Note)
	if severity != Error {
		l.Foreign++
	}
	for _, e := range resource.ErrorsIn(reject.Err) {
		l.report(severity, Foreign, reject.Key, e.Origin.Place, e.Err.Error())
	}
}

// SARIF returns findings as a value to be encoded in JSON: the part of SARIF 2.1.0
// (https://docs.oasis-open.org/sarif/sarif/v2.1.0/) for services that show them beside the lines of a change. version
// is the version of tributary.
func SARIF(findings []Finding, version string) any {
	type object = map[string]any
	results, rules := []object{}, []map[string]Rule{}
	for _, finding := range findings {
		result := object{
			"ruleId": finding.Rule, "level": finding.Severity,
			"message": object{"text": finding.subject() + finding.Message},
		}
		if name, line, column := splitPlace(finding.Place); name != "" {
			location := object{"artifactLocation": object{"uri": filepath.ToSlash(name)}}
			region := object{"startLine": line}
			if column > 0 {
				region["startColumn"] = column
			}
			if line > 0 {
				location["region"] = region
			}
			result["locations"] = []object{{"physicalLocation": location}}
		}
		results = append(results, result)
		if !slices.ContainsFunc(rules, func(rule map[string]Rule) bool { return rule["id"] == finding.Rule }) {
			rules = append(rules, map[string]Rule{"id": finding.Rule})
		}
	}
	driver := object{"name": "tributary", "version": version, "rules": rules}
	return object{
		"$schema": "https://json.schemastore.org/sarif-2.1.0.json", "version": "2.1.0",
		"runs": []object{{"tool": object{"driver": driver}, "results": results}},
	}
}

// splitPlace splits file:line:column; a missing number is 0.
func splitPlace(place string) (name string, line, column int) {
	cutNumber := func(text string) (before string, number int) {
		if i := strings.LastIndexByte(text, ':'); i >= 0 {
			if number, _ = strconv.Atoi(text[i+1:]); number > 0 {
				return text[:i], number
			}
		}
		return text, 0
	}
	name, line = cutNumber(place)
	if before, number := cutNumber(name); number > 0 {
		return before, number, line
	}
	return name, line, 0
}
