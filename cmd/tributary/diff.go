package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tributary/cmd/internal/check"
	"tributary/cmd/internal/client"
	"tributary/cmd/internal/output"
	"tributary/config"
	"tributary/internal/words"
	"tributary/resource"
	"tributary/sources"
	"tributary/sources/file"
)

type diffFlags struct {
	secure    secureFlags
	servers   []string
	at        moment
	admin     adminServer
	kinds     []string
	namespace string
	timeout   time.Duration
	log       logFlags

	schemas     []*resource.Schema // that kinds name, or all
	adminSecure bool               // the admin server speaks TLS, even if its address does not say so
}

func newDiff() *cobra.Command {
	var flags diffFlags
	cmd := &cobra.Command{
		Use:   "diff [PATH] [PATH] [--server HOST:PORT ...]",
		Short: "Compare files with a server, servers, or files, object by object",
		Long: `Diff compares the objects of two sides, each a server of MCP over xDS (tributary or istiod) or a file or directory, and
prints how they differ as YAML. Lines with - are of the first side, lines with + of the second. Servers come before paths,
so that files are shown as what they would change. The path - is standard input. A path alone is compared
with the server of the configuration (-c), by default at ` + config.DefaultXDS + `.

What is read from a path is checked as the server checks it. What it would quarantine is named with the reason, and kept apart
from what would be deleted: while an object is quarantined, its last good version is served.

With --at the first side is what the server served at a time, such as 1h (ago), as its admin server remembers it; alone, it is
compared with what it serves now.

Times of creation are compared, since istiod lets the older of two objects win that compete; not with files that name none. Of
objects without one, the order of their sources counts, if both servers are tributaries.

It exits with 3 if there is a difference.`,
		Example: `  tributary diff rules/
  tributary diff rules/ --server istiod.example:15012 --tls-ca ca.pem --token-file token --kind vs -n shop
  tributary diff --server replica-1:16010 --server replica-2:16010
  tributary diff rules.old/ rules/
  tributary diff --at 1h
  tributary diff --at "2026-05-04 03:00" --kind se -n shop rules/
  helm template . | tributary diff -`,
		Args: cobra.MaximumNArgs(2),
		RunE: asks(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			servers, err := flags.check(cmd, args)
			if err != nil {
				return err
			}
			var sides []*output.Side
			left := 0 // out, since it cannot be read
			warn := func(err error) {
				left++
				cmd.PrintErrf("warning: %v\n", err)
			}
			if !flags.at.IsZero() {
				both := len(servers)+len(args) == 0
				flags.adminSecure = len(servers) == 0 && flags.secure.given() // else that is for the server
				if sides, err = flags.remembered(ctx, both, warn); err != nil {
					return err
				}
			}
			for _, address := range servers {
				server := &client.XDS{
					Server: address, TLS: flags.secure.settings(), TokenFile: flags.secure.tokenFile(), Timeout: flags.timeout,
					Log: flags.log.logger(cmd.ErrOrStderr()),
				}
				side, err := flags.ask(ctx, server, warn)
				if err != nil {
					return err
				}
				sides = append(sides, side)
			}
			for _, path := range args {
				side, err := flags.read(ctx, path, cmd.InOrStdin(), warn)
				if err != nil {
					if !strings.HasPrefix(err.Error(), path) {
						err = fmt.Errorf("%s: %w", path, err)
					}
					return err
				}
				sides = append(sides, side)
			}
			d, err := output.WriteDifferences(cmd.OutOrStdout(), sides[0], sides[1])
			if err != nil {
				return err
			}
			cmd.PrintErrf("%s, %s only in %s, %d only in %s",
				words.Count(d.Changed, "object differs", "objects differ"), words.Count(d.OnlyInFirst, "is", "are"), sides[0].Name, d.OnlyInSecond,
				sides[1].Name)
			if d.Quarantined > 0 {
				cmd.PrintErrf(", %d would be quarantined", d.Quarantined)
			}
			if d.Unsure > 0 {
				cmd.PrintErrf(", %d may be in unreadable inputs, and would stay until these can be read", d.Unsure)
			}
			cmd.PrintErrf("\n")
			switch {
			case d.Total() > 0:
				return &failure{code: exitFindings}
			case left > 0:
				return fmt.Errorf("not compared, since it cannot be read: %s", words.Count(left, "object", "objects"))
			}
			return nil
		}),
	}
	flags.secure.add(cmd)
	f := cmd.Flags()
	f.StringArrayVar(&flags.servers, "server", nil, "host:port of a server of MCP over xDS; may be given twice")
	addServerConfig(cmd)
	f.Var(&flags.at, "at", "one side has the objects that were served at a time, or so long ago, such as 1h, by the admin server (--admin)")
	flags.admin.add(cmd, "address of the admin server that is asked for --at")
	f.StringArrayVar(&flags.kinds, "kind", nil, "compare only this kind; may be repeated")
	f.StringVarP(&flags.namespace, "namespace", "n", "", "compare only objects of this namespace")
	f.DurationVar(&flags.timeout, "timeout", 10*time.Second, "how long to wait for the first answer of a server")
	flags.log.add(cmd)
	completeFlag(cmd, "kind", completeKinds)
	return cmd
}

// check finds out which servers are meant, and which kinds.
func (f *diffFlags) check(cmd *cobra.Command, paths []string) (servers []string, err error) {
	for _, server := range f.servers {
		address, err := xdsAddress(server)
		if err != nil {
			return nil, usage("--server %s: %w", server, err)
		}
		servers = append(servers, address)
	}
	if len(paths) == 1 && len(servers) == 0 && f.at.IsZero() {
		server, err := defaultServer(cmd)
		if err != nil {
			return nil, err
		}
		servers = []string{server}
	}
	if len(paths) == 2 && paths[0] == "-" && paths[1] == "-" {
		return nil, usage("standard input can be one side only")
	}
	switch n := len(paths) + len(servers); {
	case f.at.IsZero() && n != 2:
		return nil, usage("want two sides to compare, got %d", n)
	case !f.at.IsZero() && n > 1:
		return nil, usage("want one side at most to compare with that of --at, got %d", n)
	}
	f.schemas = resource.Schemas()
	if len(f.kinds) > 0 {
		f.schemas = nil
	}
	for _, name := range f.kinds {
		schema, err := schemaNamed(name)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(f.schemas, schema) {
			f.schemas = append(f.schemas, schema)
		}
	}
	return servers, nil
}

func (f *diffFlags) selects(key resource.Key) bool {
	return (f.namespace == "" || key.Namespace == f.namespace) &&
		slices.ContainsFunc(f.schemas, func(s *resource.Schema) bool { return s.Kind == key.Kind })
}

func (f *diffFlags) add(side *output.Side, rs []*resource.Resource) {
	for _, r := range rs {
		if f.selects(r.Key()) {
			side.Add(r.WithOrigin(resource.Origin{}))
		}
	}
}

func (f *diffFlags) ask(ctx context.Context, server *client.XDS, warn func(error)) (*output.Side, error) {
	answers, err := server.GetAll(ctx, f.schemas)
	if err != nil {
		return nil, err
	}
	side := &output.Side{Name: server.Server}
	for _, answer := range answers {
		for _, err := range answer.Rejects {
			warn(err)
		}
		f.add(side, answer.Resources)
	}
	return side, nil
}

// remembered returns the objects that were served at the requested time, and the present ones if they are the other
// side.
func (f *diffFlags) remembered(ctx context.Context, both bool, warn func(error)) (sides []*output.Side, err error) {
	if err := f.at.past("--at"); err != nil {
		return nil, err
	}
	server := f.admin.client(f.secure.settings())
	server.Secure, server.TokenFile, server.Timeout = f.adminSecure, f.secure.tokenFile(), f.timeout
	times := []moment{f.at}
	if both {
		times = append(times, moment{text: "now"})
	}
	for _, at := range times {
		side := &output.Side{Name: f.admin.address + " at " + at.text}
		rs, unknown, err := servedAt(ctx, server, &at, "")
		if err != nil {
			return nil, err
		}
		for _, text := range unknown {
			warn(errors.New(text))
		}
		f.add(side, rs)
		sides = append(sides, side)
	}
	return sides, nil
}

func (f *diffFlags) read(ctx context.Context, path string, stdin io.Reader, warn func(error)) (*output.Side, error) {
	contents, degraded, err := contentsOf(ctx, path, stdin)
	if err != nil {
		return nil, err
	}
	if degraded != "" {
		warn(fmt.Errorf("%s: %s", path, degraded))
	}
	slices.SortFunc(contents, func(a, b sources.Content) int { return strings.Compare(a.Group, b.Group) })
	if path == "-" {
		path = stdinName
	}
	side := &output.Side{Name: path, Undated: true}
	for _, c := range contents {
		for _, reject := range c.Rejects {
			if _, known := resource.SchemaOf(reject.Key.Kind); reject.Key.Name == "" || !known {
				warn(reject.Err)
				side.Reject(resource.Key{}, "")
			} else if f.selects(reject.Key) {
				side.Reject(reject.Key, reject.Err.Error())
			}
		}
		for _, r := range c.Resources {
			if !f.selects(r.Key()) {
				continue
			}
			if _, err := resource.Validate(r); err != nil {
				side.Reject(r.Key(), err.Error())
				continue
			}
			side.Add(r)
		}
	}
	return side, nil
}

const stdinName = "stdin"

// contentsOf reads a path as the file source does, or standard input. It also returns the message of a source that
// could not read all.
func contentsOf(ctx context.Context, path string, stdin io.Reader) (contents []sources.Content, degraded string, err error) {
	if path != "-" {
		return check.ReadFiles(ctx, check.FileAddress(path), file.Settings{FollowLinks: true})
	}
	text, err := io.ReadAll(stdin)
	if err != nil {
		return nil, "", err
	}
	options, err := sources.Texts{}.Options()
	if err != nil {
		return nil, "", err
	}
	return []sources.Content{sources.Decode(stdinName, stdinName, text, options)}, "", nil
}
