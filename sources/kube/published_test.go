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

// published takes the objects that a source publishes, and compares them with those of the cluster. It outlives the
// runs of the source.
type published struct {
	*history
	groups  map[string]map[string]string // the objects of a group, by name
	record  []byte
	health  sources.Health
	ended   bool
	synced  bool        // the run has published all objects
	earlier []published // earlier moments, the last ones
}

// ReplaceAll implements sources.Sink.
func (p *published) ReplaceAll(contents []sources.Content) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		p.fail("it publishes after its end")
	}
	twice := make(map[string]bool)
	for _, content := range contents {
		if twice[content.Group] {
			p.fail("group %s is published twice at once", content.Group)
		}
		twice[content.Group] = true
		names := namesOf(content)
		p.judge(content.Group, p.groups[content.Group], names)
		if p.groups[content.Group] = names; len(names) == 0 {
			delete(p.groups, content.Group)
		}
	}
	p.remember()
	return nil
}

// remember records the state that would be stored at a crash. mu is held.
func (p *published) remember() {
	p.earlier = append(p.earlier[max(0, len(p.earlier)-3):], published{groups: maps.Clone(p.groups), record: p.record})
}

// rewind brings back an earlier moment; its holds are far too long, since the clock was wrong. mu is held.
func (p *published) rewind(moments int) {
	if i := len(p.earlier) - 1 - moments; i >= 0 {
		p.groups, p.record, p.earlier = p.earlier[i].groups, p.earlier[i].record, nil
	}
	var notes map[string]map[string]any
	if json.Unmarshal(p.record, &notes) != nil {
		return
	}
	for _, n := range notes {
		if deadline, err := time.Parse(time.RFC3339, fmt.Sprint(n["until"])); err == nil && !deadline.IsZero() {
			n["until"] = deadline.AddDate(10, 0, 0)
		}
	}
	p.record = encode(notes)
}

// judge fails if something goes that was not deleted, or a rule is of a time before it was.
func (p *published) judge(group string, before, after map[string]string) {
	kind, _, _ := strings.Cut(group, "/")
	composed := kind == "Service" || kind == "derived" // of several objects, some of which may be older than others after a restore
	for name := range before {
		_, exists := after[name]
		mixed := composed && (p.lax || len(p.wanted[name]) == 0)
		if !exists && !mixed && !slices.Contains(p.wanted[name][min(p.from[name], len(p.wanted[name])):], "") {
			p.fail("%s: %s goes, which was never deleted: %v, %v, %q", time.Since(p.started), name, before, after, p.wanted[name])
		}
		if !exists && time.Now().Before(p.held[name]) {
			p.fail("%s: %s goes, which should be held until %s", time.Since(p.started), name, p.held[name].Sub(p.started))
		}
	}
	if composed {
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
func (p *published) LastNote() []byte        { p.mu.Lock(); defer p.mu.Unlock(); return p.record }

func (p *published) Keep(note []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.record = note
	p.remember()
}

// Synced fails if an object is missing without a cause.
func (p *published) Synced() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.synced = true
	if p.first != [2]int{p.Version(), p.Troubles()} || p.slack > time.Minute {
		return
	}
	has := p.all()
	for name, text := range p.now {
		if has[name] != text {
			p.fail("%s: it is synced, and has %q as %s", time.Since(p.started), has[name], name)
		}
	}
}

// all returns the published objects, by name. mu is held.
func (p *published) all() map[string]string {
	objects := make(map[string]string)
	for _, names := range p.groups {
		maps.Copy(objects, names)
	}
	return objects
}

// namesOf returns the published names: an object, an endpoint of one, or a reject.
func namesOf(content sources.Content) map[string]string {
	names := make(map[string]string)
	for _, r := range content.Resources {
		text, err := resource.MarshalYAML(r)
		if err != nil {
			panic(err)
		}
		names[content.Group+" "+r.Key().String()] = string(text)
		for line := range strings.Lines(string(text)) {
			if _, address, ok := strings.Cut(line, "- address: "); ok && strings.HasPrefix(content.Group, "Service/") {
				names[content.Group+" endpoint "+strings.TrimSpace(address)] = "endpoint"
			}
		}
	}
	for _, r := range content.Rejects {
		names[content.Group+" "+r.Key.String()] = "rejected"
	}
	return names
}
