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

// Compete reports conflicts between objects of different names, such as two VirtualServices of a host. It merges all
// checked objects as the server does.
func (l *Linter) Compete(ctx context.Context) error {
	if len(l.validated) == 0 {
		return nil
	}
	view := aggregate.New()
	var origins []aggregate.Source
	for i, objects := range l.validated {
		name := objects.terms.Name
		if name == "" {
			name = fmt.Sprint("path ", i+1)
		}
		origins = append(origins, aggregate.Source{
			Name: name, Reader: &objects.table, Precedence: objects.terms.Precedence,
			Merge: objects.terms.Merge,
		})
	}
	if l.server != nil {
		origins = append(origins, aggregate.Source{Name: "the server", Reader: &l.server.table, Precedence: math.MinInt})
	}
	view.SetSources(origins...)
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
	for _, conflict := range view.Conflicts() {
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

// Analyze reports references without a target and fields without effect in the merged objects, after Compete. A missing
// target may be in a source that was not read.
func (l *Linter) Analyze() {
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
		options, unread = references.Options{}, nil
		if l.server.unread != "" {
			options.Partial, unread = true, []string{l.server.unread}
		}
	}
	failed := 0
	for _, problem := range l.Findings {
		if problem.Severity == Error && problem.Rule != Duplicate && problem.Rule != Foreign &&
			!conflicts.Rule(problem.Rule).IsError() {
			failed++
		}
	}
	if failed > l.unreadErrors {
		options.Partial = true
		unread = append(unread, "an object with an error")
	}
	unresolved, unchecked := references.Find(l.merged.Snapshot(), options)
	missing := make(map[string]bool) // fields of the server's objects that have no target already
	if l.server != nil {
		before, _ := references.FindMissing(l.server.table.Snapshot(), options)
		for _, problem := range before {
			missing[fieldOf(problem)] = true
		}
	}
	for _, problem := range unresolved {
		if l.places[problem.Key] == "" { // an object of the server
			if problem.Code == references.NotFound && l.server != nil && !missing[fieldOf(problem)] {
				l.report(Error, Rule(problem.Code), problem.Key, "the server",
					fmt.Sprintf("with these objects, %s (%s)", problem.Message, problem.Code))
			}
			continue
		}
		if l.server != nil && problem.Code == references.NotFound {
			problem.Severity = references.Error
		}
		var n int
		// Istio's validation reports the same without the reason.
		if _, err := fmt.Sscanf(problem.Message, "spec.http[%d]", &n); err == nil && problem.Code == references.Unreachable {
			istioMessage := fmt.Sprintf("virtualService rule #%d not used", n)
			l.Findings = slices.DeleteFunc(l.Findings, func(finding Finding) bool {
				return finding.key() == problem.Key && strings.HasPrefix(finding.Message, istioMessage)
			})
		}
		place := l.fieldPlace(l.places[problem.Key], problem.Key.Name, problem.Message)
		l.report(Severity(problem.Severity), Rule(problem.Code), problem.Key, place,
			fmt.Sprintf("%s (%s)", problem.Message, problem.Code))
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

// Served adds the objects that a server serves, as its /debug/configz lists them. Compete and Analyze check the objects
// of the linter against them. Unread names the sources that the server has never read; empty if there are none.
func (l *Linter) Served(configz []byte, unread string) error {
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

// Check reports each message of a check about a valid object as a warning of a rule, after Compete. prepare gets the
// merged objects.
func (l *Linter) Check(
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

// Accepted reports an error for each Envoy resource that the Envoy binary at path rejects, after Compete. The place is
// that of one of the resource's objects, preferably of a rule rather than of a service.
func (l *Linter) Accepted(ctx context.Context, path string) error {
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
