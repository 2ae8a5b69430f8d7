package lint

import (
	"context"
	"fmt"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"tributary/cmd/internal/firstread"
	"tributary/cmd/internal/words"
	"tributary/config"
)

// connect reads what a source has that is no file, and notes what of it would be served. A source that cannot be read is a finding.
func (l *Linter) connect(ctx context.Context, name string, s config.Source) error {
	source, err := l.Connect(s)
	if err != nil {
		return fmt.Errorf("source %s: %w", s.Name, err)
	}
	groups, said, err := firstread.Registry(ctx, source)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		l.Findings = append(l.Findings, Finding{Place: name, Severity: Error, Rule: Unreadable, Message: fmt.Sprintf("source %s (%s): %v", s.Name, s.Shown(), err)})
		return nil
	}
	objects, endpoints, refused, warnings, left := 0, 0, 0, 0, 0
	for _, c := range groups {
		objects, refused, warnings, left = objects+len(c.Resources), refused+len(c.Rejects), warnings+len(c.Warnings), left+len(c.LeftOut)
		for _, r := range c.Resources {
			if spec, err := r.Spec(); err == nil {
				if entry, is := spec.(*networking.ServiceEntry); is {
					endpoints += len(entry.Endpoints)
				}
			}
		}
	}
	counted := []string{fmt.Sprintf("source %s (%s): %s with %s would be served", s.Name, s.Shown(), words.Count(objects, "object", "objects"), words.Count(endpoints, "endpoint", "endpoints"))}
	for _, of := range []struct {
		n         int
		one, many string
	}{{refused, "is not valid", "are not valid"}, {left, "instance is left out", "instances are left out"}, {warnings, "warning", "warnings"}} {
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
