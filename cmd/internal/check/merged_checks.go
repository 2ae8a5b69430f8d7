package check

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"

	"tributary/aggregate"
	"tributary/aggregate/conflicts"
	"tributary/config"
	"tributary/internal/words"
	"tributary/memstore"
	"tributary/resource"
	"tributary/server/envoy"
	"tributary/server/envoy/binary"
	"tributary/server/envoy/references"
)

// CheckConflicts reports conflicts between objects of different names, such as two VirtualServices of a host. It merges
// all checked objects as the server does.
func (l *Linter) CheckConflicts(ctx context.Context) error {
	if len(l.validated) == 0 {
		return nil
	}
	view := aggregate.New()
	var inputs []aggregate.Source
	for i, objects := range l.validated {
		name := objects.terms.Name
		if name == "" {
			name = fmt.Sprint("path ", i+1)
		}
		inputs = append(inputs, aggregate.Source{
			Name: name, Reader: &objects.table, Precedence: objects.terms.Precedence,
			Merge: objects.terms.Merge,
		})
	}
	if l.server != nil {
		inputs = append(inputs, aggregate.Source{Name: "the server", Reader: &l.server.table, Precedence: math.MinInt})
	}
	view.SetSources(inputs...)
	l.merged = view
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = view.Run(ctx) // its only error is that of ctx
	}()
	defer func() {
		stop()
		<-ended
	}()
	for {
		changed := view.Changed()
		if view.Synced() {
			break
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	for _, conflict := range view.Competing() {
		last := conflict.Objects[len(conflict.Objects)-1].Key()
		if !slices.ContainsFunc(conflict.Objects, func(o conflicts.Ref) bool { return l.places[o.Key()] != "" }) {
			continue // only objects of the server conflict
		}
		rivals := words.Each(conflict.Objects[:len(conflict.Objects)-1],
			func(o conflicts.Ref) string { return l.describe(o.Key()) })
		severity, message := Warning, conflict.Message
		if conflict.Rule.IsError() {
			severity, message = Error, fmt.Sprintf("%s (%s)", message, conflict.Rule)
		}
		l.report(severity, Rule(conflict.Rule), last, l.places[last],
			fmt.Sprintf("on %s with %s: %s", conflict.Subject, strings.Join(rivals, ", "), message))
	}
	return nil
}

// CheckReferences reports references without a target and fields without effect in the merged objects, after
// CheckConflicts. A missing target may be in a source that was not read.
func (l *Linter) CheckReferences() {
	if l.merged == nil {
		return
	}
	var options references.Options
	var unread []string
	for _, source := range l.unread {
		unread = append(unread, source.Name)
		if config.OnlyHosts(source.Settings) {
			options.Hosts = true
		} else {
			options.Partial = true
		}
	}
	if l.server != nil { // the server's objects include those of its sources
		options = references.Options{}
		unread = nil
		if l.server.unread != "" {
			options.Partial = true
			unread = []string{l.server.unread}
		}
	}
	failedObjects := 0
	for _, finding := range l.Findings {
		if finding.Severity == Error && finding.Rule != Duplicate && finding.Rule != Foreign &&
			!conflicts.Rule(finding.Rule).IsError() {
			failedObjects++
		}
	}
	if failedObjects > l.unreadErrors {
		options.Partial = true
		unread = append(unread, "an object with an error")
	}
	unresolved, unchecked := references.Find(l.merged.Snapshot(), options)
	missingBefore := make(map[string]bool) // fields that have no target among the server's objects
	if l.server != nil {
		before, _ := references.FindMissing(l.server.table.Snapshot(), options)
		for _, reference := range before {
			missingBefore[fieldOf(reference)] = true
		}
	}
	for _, reference := range unresolved {
		if l.places[reference.Key] == "" { // an object of the server
			if reference.Code == references.NotFound && l.server != nil && !missingBefore[fieldOf(reference)] {
				l.report(Error, Rule(reference.Code), reference.Key, "the server",
					fmt.Sprintf("with these objects, %s (%s)", reference.Message, reference.Code))
			}
			continue
		}
		if l.server != nil && reference.Code == references.NotFound {
			reference.Severity = references.Error
		}
		var n int
		// Istio's validation reports the same without the reason.
		_, err := fmt.Sscanf(reference.Message, "spec.http[%d]", &n)
		if err == nil && reference.Code == references.Unreachable {
			istioMessage := fmt.Sprintf("virtualService rule #%d not used", n)
			l.Findings = slices.DeleteFunc(l.Findings, func(finding Finding) bool {
				return finding.key() == reference.Key && strings.HasPrefix(finding.Message, istioMessage)
			})
		}
		place := l.fieldPlace(l.places[reference.Key], reference.Key.Name, reference.Message)
		l.report(Severity(reference.Severity), Rule(reference.Code), reference.Key, place,
			fmt.Sprintf("%s (%s)", reference.Message, reference.Code))
	}
	if omitted := len(unchecked) - maxUncheckedNames; omitted > 0 {
		unchecked = append(unchecked[:maxUncheckedNames], fmt.Sprintf("%d more", omitted))
	}
	if len(unchecked) > 0 {
		l.Unchecked = fmt.Sprintf("references to %s were not checked, since %s was not read", strings.Join(unchecked, ", "),
			strings.Join(unread, " and "))
	}
}

// fieldOf names the field of a finding.
func fieldOf(f references.Finding) string {
	field, _, _ := strings.Cut(f.Message, ": ")
	return fmt.Sprint(f.Key, " ", field)
}

// server holds the objects of a running server.
type server struct {
	table  memstore.Table
	unread string // the names of its unread sources, or empty
}

// AddServed adds the objects that a server serves, as its /debug/configz lists them. CheckConflicts and CheckReferences
// check the objects of the linter against them. Unread names the sources that the server has never read; empty if there
// are none.
func (l *Linter) AddServed(configz []byte, unread string) error {
	l.server = &server{unread: unread}
	text := slices.Concat([]byte(`{"apiVersion": "v1", "kind": "List", "items": `), configz, []byte("}"))
	var objects []*resource.Resource
	for _, document := range resource.Decode("the server", text, resource.Options{}) {
		if err := document.Errors.Err(); err != nil {
			return fmt.Errorf("objects of the server: %w", err)
		}
		if document.Resource != nil {
			objects = append(objects, document.Resource)
		}
	}
	l.server.table.Apply(objects, nil)
	l.server.table.MarkSynced()
	return nil
}

const maxUncheckedNames = 5

// CheckObjects reports each message of a check about a valid object as a warning of a rule, after CheckConflicts.
// prepare gets the merged objects.
func (l *Linter) CheckObjects(
	rule Rule, prepare func(merged memstore.Reader) (check func(*resource.Resource) []string, err error),
) error {
	if l.merged == nil {
		return nil
	}
	check, err := prepare(l.merged)
	if err != nil {
		return err
	}
	for _, objects := range l.validated {
		for r := range objects.table.Snapshot().All() {
			for _, message := range check(r) {
				l.report(Warning, rule, r.Key(), l.fieldPlace(objects.places[r.Key()], r.Key().Name, message), message)
			}
		}
	}
	return nil
}

// CheckByEnvoy reports an error for each resource that the Envoy binary at path rejects, after CheckConflicts. The
// place is that of one of the objects that the resource is made of: preferably a rule, not a service.
func (l *Linter) CheckByEnvoy(ctx context.Context, path string) error {
	if l.merged == nil {
		return nil
	}
	samples, err := envoy.ServedOf(l.merged)
	if err != nil {
		return err
	}
	reported := make(map[string]bool)
	for _, served := range samples {
		rejections, err := binary.Check(ctx, path, served.Resources)
		if err != nil {
			return err
		}
		for _, rejection := range rejections {
			var names, origins []string
			var last resource.Key
			for _, message := range rejection.Resources {
				names = append(names, fmt.Sprintf("%s %s", message.ProtoReflect().Descriptor().Name(),
					message.(interface{ GetName() string }).GetName()))
				for _, key := range served.Objects(message) {
					origins = append(origins, l.describe(key))
					if last.Kind == "" || key.Kind != resource.ServiceEntry && key.Kind != resource.WorkloadEntry {
						last = key
					}
				}
			}
			rejected := strings.Join(names, ", ")
			if reported[rejected+rejection.Text] {
				continue
			}
			reported[rejected+rejection.Text] = true
			l.report(Error, Rejected, last, cmp.Or(l.places[last], path),
				fmt.Sprintf("Envoy rejects %s, made of %s: %s", rejected, strings.Join(origins, ", "), rejection.Text))
		}
	}
	return nil
}

func (l *Linter) describe(key resource.Key) string {
	if place := l.places[key]; place != "" {
		return fmt.Sprintf("%s (%s)", key, place)
	}
	return key.String()
}

// fieldPlace returns the place of the field at the beginning of a message about the object of a name at a place, or the
// object's place.
func (l *Linter) fieldPlace(place, name, message string) string {
	file := place[:max(0, strings.LastIndexByte(place, ':'))]
	text, read := l.texts[file]
	if !read {
		text, _ = os.ReadFile(file) //nolint:gosec // it was read before
		l.keepText(file, text)
	}
	field, _, _ := strings.Cut(message, " ")
	return resource.FieldPlace(text, place, name, strings.TrimSuffix(field, ":"))
}

func (l *Linter) keepText(file string, text []byte) {
	if l.texts == nil {
		l.texts = make(map[string][]byte)
	}
	l.texts[file] = text
}
