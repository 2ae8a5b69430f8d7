package kube_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"tributary/resource"
	"tributary/sources"
)

// published takes what a source publishes, and holds it against what the cluster had. It outlives the runs of the source.
type published struct {
	*history
	groups map[string]map[string]string // what is in a group, by name
	kept   []byte
	health sources.Health
	ended  bool
	was    []published // earlier moments, the last ones
}

// ReplaceAll implements sources.Sink.
func (p *published) ReplaceAll(contents []sources.Content) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		p.fail("it publishes after its end")
	}
	twice := make(map[string]bool)
	for _, c := range contents {
		if twice[c.Group] {
			p.fail("group %s is published twice at once", c.Group)
		}
		twice[c.Group] = true
		names := namesOf(c)
		p.judge(c.Group, p.groups[c.Group], names)
		if p.groups[c.Group] = names; len(names) == 0 {
			delete(p.groups, c.Group)
		}
	}
	p.remember()
	return nil
}

// remember notes what would be known after a crash. mu is held.
func (p *published) remember() {
	p.was = append(p.was[max(0, len(p.was)-3):], published{groups: maps.Clone(p.groups), kept: p.kept})
}

// rewind brings back an earlier moment; what is held then is so for far too long, since the clock was wrong. mu is held.
func (p *published) rewind(moments int) {
	if i := len(p.was) - 1 - moments; i >= 0 {
		p.groups, p.kept, p.was = p.was[i].groups, p.was[i].kept, nil
	}
	var notes map[string]map[string]any
	if json.Unmarshal(p.kept, &notes) != nil {
		return
	}
	for _, n := range notes {
		if deadline, err := time.Parse(time.RFC3339, fmt.Sprint(n["Until"])); err == nil && !deadline.IsZero() {
			n["Until"] = deadline.AddDate(10, 0, 0)
		}
	}
	p.kept = encode(notes)
}

// judge fails if something goes that was not deleted, or a rule is of a time before it was.
func (p *published) judge(group string, before, after map[string]string) {
	kind, _, _ := strings.Cut(group, "/")
	made := kind == "Service" || kind == "derived" // of several objects, of which some may be older than others after a restore
	for name := range before {
		_, there := after[name]
		mixed := made && (p.lax || len(p.wanted[name]) == 0)
		if !there && !mixed && !slices.Contains(p.wanted[name][min(p.from[name], len(p.wanted[name])):], "") {
			p.fail("%s: %s goes, which was never deleted: %v, %v, %q", time.Since(p.started), name, before, after, p.wanted[name])
		}
		if !there && time.Now().Before(p.held[name]) {
			p.fail("%s: %s goes, which should be held until %s", time.Since(p.started), name, p.held[name].Sub(p.started))
		}
	}
	if made {
		return
	}
	for name, text := range after {
		from := p.from[name]
		if p.lax {
			from = 0
		}
		i := slices.Index(p.wanted[name][min(from, len(p.wanted[name])):], text)
		if i < 0 {
			p.fail("%s: %s is published as it was before or never: %s of %q from %d", time.Since(p.started), name, text, p.wanted[name], from)
		}
		p.from[name] = from + i
	}
}

func (p *published) Groups() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Sorted(maps.Keys(p.groups))
}

func (p *published) Report(h sources.Health) { p.mu.Lock(); p.health = h; p.mu.Unlock() }
func (p *published) Kept() []byte            { p.mu.Lock(); defer p.mu.Unlock(); return p.kept }

func (p *published) Keep(note []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.kept = note
	p.remember()
}

// Synced fails if something is missing, though nothing stood in the way.
func (p *published) Synced() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.troubled || p.version != p.first || p.slack > time.Minute {
		return
	}
	has := p.all()
	for name, text := range p.now {
		if has[name] != text {
			p.fail("%s: it is synced, and has %q as %s", time.Since(p.started), has[name], name)
		}
	}
}

// all returns what is published, by name. mu is held.
func (p *published) all() map[string]string {
	has := make(map[string]string)
	for _, names := range p.groups {
		maps.Copy(has, names)
	}
	return has
}

// namesOf returns what is published by name: an object, an endpoint of one, or that it is rejected.
func namesOf(c sources.Content) map[string]string {
	names := make(map[string]string)
	for _, r := range c.Resources {
		text, err := resource.MarshalYAML(r)
		if err != nil {
			panic(err)
		}
		names[c.Group+" "+r.Key().String()] = string(text)
		for line := range strings.Lines(string(text)) {
			if _, address, ok := strings.Cut(line, "- address: "); ok && strings.HasPrefix(c.Group, "Service/") {
				names[c.Group+" endpoint "+strings.TrimSpace(address)] = "endpoint"
			}
		}
	}
	for _, r := range c.Rejects {
		names[c.Group+" "+r.Key.String()] = "rejected"
	}
	return names
}
