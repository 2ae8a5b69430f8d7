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

// Compete adds what can be found only of all objects together: those of different names that claim one thing, such as
// two VirtualServices of one host. All that was looked at counts as the server merges it.
func (l *Linter) Compete(ctx context.Context) error {
	if len(l.looks) == 0 {
		return nil
	}
	view := aggregate.New()
	var all []aggregate.Source
	for i, at := range l.looks {
		name := at.terms.Name
		if name == "" {
			name = fmt.Sprint("path ", i+1)
		}
		all = append(all, aggregate.Source{Name: name, Reader: &at.table, Precedence: at.terms.Precedence, Merge: at.terms.Merge})
	}
	if l.server != nil {
		all = append(all, aggregate.Source{Name: "the server", Reader: &l.server.table, Precedence: math.MinInt})
	}
	view.SetSources(all...)
	l.merged = view
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = view.Run(ctx) // until it is stopped
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
	for _, c := range view.Conflicts() {
		last := c.Objects[len(c.Objects)-1].Key()
		if !slices.ContainsFunc(c.Objects, func(o conflicts.Ref) bool { return l.placeOf(o.Key()) != "" }) {
			continue // objects of the server alone
		}
		others := words.Each(c.Objects[:len(c.Objects)-1], func(o conflicts.Ref) string { return l.named(o.Key()) })
		l.find(Warning, Rule(c.Rule), last, l.placeOf(last), fmt.Sprintf("on %s with %s: %s", c.Subject, strings.Join(others, ", "), c.Message))
	}
	return nil
}

// Analyze adds what leads nowhere and what has no effect, of all objects as the server merges them, after Compete. What
// somebody did not read, or could not, counts as something that may have what is missing.
func (l *Linter) Analyze() {
	if l.merged == nil {
		return
	}
	var options references.Options
	var unread []string
	for _, s := range l.unread {
		unread = append(unread, s.Name)
		if config.OnlyHosts(s.Settings) {
			options.Hosts = true
		} else {
			options.Partial = true
		}
	}
	if l.server != nil { // it has the content of the sources that it reads
		options, unread = references.Options{Partial: l.server.unread != ""}, []string{l.server.unread}
	}
	failed := 0
	for _, f := range l.Findings {
		if f.Severity == Error && f.Rule != Duplicate && f.Rule != Foreign {
			failed++
		}
	}
	if failed > l.unreadErrors {
		options.Partial = true
		unread = append(unread, "what has an error")
	}
	found, unchecked := references.Find(l.merged.Snapshot(), options)
	missing := make(map[string]bool) // fields of the server's objects that lead nowhere already
	if l.server != nil {
		before, _ := references.FindMissing(l.server.table.Snapshot(), options)
		for _, f := range before {
			missing[fieldOf(f)] = true
		}
	}
	for _, f := range found {
		if l.placeOf(f.Key) == "" { // an object of the server
			if f.Code == references.NotFound && l.server != nil && !missing[fieldOf(f)] {
				l.find(Error, Rule(f.Code), f.Key, "the server", fmt.Sprintf("with these objects, %s (%s)", f.Message, f.Code))
			}
			continue
		}
		if l.server != nil && f.Code == references.NotFound {
			f.Severity = references.Error
		}
		var n int
		// Istio's validation says the same, and not why
		if _, err := fmt.Sscanf(f.Message, "spec.http[%d]", &n); err == nil && f.Code == references.Unreachable {
			same := fmt.Sprintf("virtualService rule #%d not used", n)
			l.Findings = slices.DeleteFunc(l.Findings, func(of Finding) bool {
				return of.key() == f.Key && strings.HasPrefix(of.Message, same)
			})
		}
		place := l.fieldPlace(l.placeOf(f.Key), f.Key.Name, f.Message)
		l.find(Severity(f.Severity), Rule(f.Code), f.Key, place, fmt.Sprintf("%s (%s)", f.Message, f.Code))
	}
	if more := len(unchecked) - maxUnchecked; more > 0 {
		unchecked = append(unchecked[:maxUnchecked], fmt.Sprintf("%d more", more))
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

// server is the content of a server.
type server struct {
	table  memstore.Table
	unread string // names its unread sources; empty if there are none
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

const maxUnchecked = 5

// Check adds a warning of a rule for each thing that a check has to say of an object that was found right. The check is made of all objects
// as the server merges them, after Compete.
func (l *Linter) Check(rule Rule, make func(merged memstore.Reader) (check func(*resource.Resource) []string, err error)) error {
	if l.merged == nil {
		return nil
	}
	check, err := make(l.merged)
	if err != nil {
		return err
	}
	for _, at := range l.looks {
		for r := range at.table.Snapshot().All() {
			for _, message := range check(r) {
				l.find(Warning, rule, r.Key(), l.fieldPlace(at.seen[r.Key()], r.Key().Name, message), message)
			}
		}
	}
	return nil
}

// Accepted adds an error for each resource that the Envoy binary of a path rejects of what Envoys would be served, after Compete. It stands
// at one of the objects that the resource is made of: rather at one that is no service.
func (l *Linter) Accepted(ctx context.Context, path string) error {
	if l.merged == nil {
		return nil
	}
	all, err := envoy.ServedOf(l.merged)
	if err != nil {
		return err
	}
	seen := make(map[string]bool)
	for _, served := range all {
		rejections, err := binary.Check(ctx, path, served.Resources)
		if err != nil {
			return err
		}
		for _, r := range rejections {
			var names, made []string
			var last resource.Key
			for _, m := range r.Resources {
				names = append(names, fmt.Sprintf("%s %s", m.ProtoReflect().Descriptor().Name(), m.(interface{ GetName() string }).GetName()))
				for _, key := range served.Objects(m) {
					made = append(made, l.named(key))
					if last.Kind == "" || key.Kind != resource.ServiceEntry && key.Kind != resource.WorkloadEntry {
						last = key
					}
				}
			}
			what := strings.Join(names, ", ")
			if seen[what+r.Text] {
				continue
			}
			seen[what+r.Text] = true
			l.find(Error, Rejected, last, cmp.Or(l.placeOf(last), path),
				fmt.Sprintf("Envoy rejects %s, made of %s: %s", what, strings.Join(made, ", "), r.Text))
		}
	}
	return nil
}

func (l *Linter) named(key resource.Key) string {
	if place := l.placeOf(key); place != "" {
		return fmt.Sprintf("%s (%s)", key, place)
	}
	return key.String()
}

// placeOf returns where an object was seen first. One that is merged of several has no place of its own.
func (l *Linter) placeOf(key resource.Key) string { return l.seen[key] }

// fieldPlace returns the place of the field that a message begins with, in the object of a name at a place; or that of the object.
func (l *Linter) fieldPlace(place, name, message string) string {
	file := place[:max(0, strings.LastIndexByte(place, ':'))]
	text, read := l.texts[file]
	if !read {
		text, _ = os.ReadFile(file) //nolint:gosec // it was read before
		l.keep(file, text)
	}
	field, _, _ := strings.Cut(message, " ")
	return resource.FieldPlace(text, place, name, strings.TrimSuffix(field, ":"))
}

func (l *Linter) keep(file string, text []byte) {
	if l.texts == nil {
		l.texts = make(map[string][]byte)
	}
	l.texts[file] = text
}
