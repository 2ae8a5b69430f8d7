package check

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"tributary/aggregate"
	"tributary/config"
	"tributary/sources"
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
	if len(content.Resources)+len(content.Rejects)+content.Foreign == 0 {
		base := filepath.Base(name)
		if slices.ContainsFunc(config.DefaultPaths(), func(p string) bool { return filepath.Base(p) == base }) {
			cfg, err := config.Parse(name, text)
			return l.Config(ctx, name, cfg, err, offline) // one that says nothing is refused by serve, too
		}
		l.at(name, Warning, Empty, "nothing is in it: neither objects nor a configuration")
	}
	l.keep(name, text)
	l.Contents(content)
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

// problems notes what is wrong with a configuration.
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
