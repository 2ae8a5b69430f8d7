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
	time      moment
	admin     adminServer
	kinds     []string
	namespace string
	timeout   time.Duration
	log       logFlags

	schemas     []*resource.Schema // the schemas of kinds, or all
	adminSecure bool               // the admin server speaks TLS, even if its address does not say so
}

func newDiff() *cobra.Command {
	var flags diffFlags
	command := &cobra.Command{
		Use:   "diff [PATH] [PATH] [--server HOST:PORT ...]",
		Short: "Compare files with a server, servers, or files, object by object",
		Long: `Diff compares the objects of two sides, each a server of MCP over xDS (tributary or istiod) or a file or
directory, and prints the differences as YAML. Lines with - are of the first side, lines with + of the second. Servers
come before paths, so that the changes by files are shown. The path - is standard input. A path alone is compared with
the server of the configuration (-c), by default at ` + config.DefaultXDS + `.

Objects of a path are checked as the server checks them. Objects that it would quarantine are named with the reason,
apart from deleted ones: while an object is quarantined, its last good version is served.

With --at the first side has the objects that the server served at a time, such as 1h (ago), by the history of its
admin server; alone, it is compared with the objects that it serves now.

Times of creation are compared, since istiod lets the older of two objects win that compete; not with files that name
none. Of objects without one, the order of their sources counts, if both servers are tributaries.

It exits with 3 if there is a difference.`,
		Example: `  tributary diff rules/
  tributary diff rules/ --server istiod.example:15012 --tls-ca ca.pem --token-file token --kind vs -n shop
  tributary diff --server replica-1:16010 --server replica-2:16010
  tributary diff rules.old/ rules/
  tributary diff --at 1h
  tributary diff --at "2026-05-04 03:00" --kind se -n shop rules/
  helm template . | tributary diff -`,
		Args: cobra.MaximumNArgs(2),
		RunE: runInterruptible(flags.run),
	}
	flags.secure.add(command)
	flagSet := command.Flags()
	flagSet.StringArrayVar(&flags.servers, "server", nil, "host:port of a server of MCP over xDS; may be given twice")
	addServerConfig(command)
	flagSet.Var(&flags.time, "at", "one side has the objects that were served at a time, or at an age such as 1h, by "+
		"the admin server (--admin)")
	flags.admin.add(command, "address of the admin server that is asked for --at")
	flagSet.StringArrayVar(&flags.kinds, "kind", nil, "compare only this kind; may be repeated")
	flagSet.StringVarP(&flags.namespace, "namespace", "n", "", "compare only objects of this namespace")
	flagSet.DurationVar(&flags.timeout, "timeout", answerTimeout, "how long to wait for the first answer of a server")
	flags.log.add(command)
	completeFlag(command, "kind", cobra.FixedCompletions(offeredKinds(), noFiles))
	return command
}

func (f *diffFlags) run(ctx context.Context, command *cobra.Command, args []string) error {
	sides, unread, err := f.sides(ctx, command, args)
	if err != nil {
		return err
	}
	difference, err := output.WriteDifferences(command.OutOrStdout(), sides[0], sides[1])
	if err != nil {
		return err
	}
	command.PrintErrf("%s, %s only in %s, %d only in %s",
		words.Count(difference.Changed, "object differs", "objects differ"), words.Count(difference.OnlyInFirst, "is", "are"),
		sides[0].Name,
		difference.OnlyInSecond, sides[1].Name)
	if difference.Quarantined > 0 {
		command.PrintErrf(", %d would be quarantined", difference.Quarantined)
	}
	if difference.Unsure > 0 {
		command.PrintErrf(", %d may be in unreadable inputs, and would stay until these can be read", difference.Unsure)
	}
	command.PrintErrf("\n")
	switch {
	case difference.Total() > 0:
		return &failure{code: exitFindings}
	case unread > 0:
		return fmt.Errorf("not compared, since it cannot be read: %s", words.Count(unread, "object", "objects"))
	}
	return nil
}

// sides reads both sides, and counts the unreadable inputs.
func (f *diffFlags) sides(ctx context.Context, command *cobra.Command, paths []string) (
	sides []*output.Side, unread int, err error,
) {
	servers, err := f.check(command, paths)
	if err != nil {
		return nil, 0, err
	}
	warn := func(err error) {
		unread++
		command.PrintErrf("warning: %v\n", err)
	}
	if !f.time.IsZero() {
		f.adminSecure = len(servers) == 0 && f.secure.given() // otherwise the flags are for the xDS server
		if sides, err = f.servedSides(ctx, len(servers)+len(paths) == 0, warn); err != nil {
			return nil, unread, err
		}
	}
	for _, address := range servers {
		side, err := f.ask(ctx, &client.XDS{
			Server: address, TLS: f.secure.settings(), TokenFile: f.secure.tokenFile(), Timeout: f.timeout,
			Log: f.log.logger(command.ErrOrStderr()),
		}, warn)
		if err != nil {
			return nil, unread, err
		}
		sides = append(sides, side)
	}
	for _, path := range paths {
		side, err := f.read(ctx, path, command.InOrStdin(), warn)
		if err != nil {
			if !strings.HasPrefix(err.Error(), path) {
				err = fmt.Errorf("%s: %w", path, err)
			}
			return nil, unread, err
		}
		sides = append(sides, side)
	}
	return sides, unread, nil
}

// check reads the servers and the kinds of the arguments and flags.
func (f *diffFlags) check(command *cobra.Command, paths []string) (servers []string, err error) {
	for _, server := range f.servers {
		address, err := xdsAddress(server)
		if err != nil {
			return nil, usage("--server %s: %w", server, err)
		}
		servers = append(servers, address)
	}
	if len(paths) == 1 && len(servers) == 0 && f.time.IsZero() {
		server, err := defaultServer(command)
		if err != nil {
			return nil, err
		}
		servers = []string{server}
	}
	if len(paths) == 2 && paths[0] == "-" && paths[1] == "-" {
		return nil, usage("standard input can be one side only")
	}
	switch count := len(paths) + len(servers); {
	case f.time.IsZero() && count != 2:
		return nil, usage("want two sides to compare, got %d", count)
	case !f.time.IsZero() && count > 1:
		return nil, usage("want one side at most to compare with that of --at, got %d", count)
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

// servedSides returns the objects that were served at the requested time, and the present ones if they are the other
// side.
func (f *diffFlags) servedSides(ctx context.Context, withPresent bool, warn func(error)) (
	sides []*output.Side, err error,
) {
	if err := f.time.past("--at"); err != nil {
		return nil, err
	}
	server := f.admin.secured(&f.secure, f.timeout)
	server.Secure = f.adminSecure
	times := []moment{f.time}
	if withPresent {
		times = append(times, moment{text: "now"})
	}
	for _, moment := range times {
		side := &output.Side{Name: f.admin.address + " at " + moment.text}
		resources, unknown, err := servedAt(ctx, server, &moment, "")
		if err != nil {
			return nil, err
		}
		for _, text := range unknown {
			warn(errors.New(text))
		}
		f.add(side, resources)
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
	for _, content := range contents {
		for _, reject := range content.Rejects {
			if _, exists := resource.SchemaOf(reject.Key.Kind); reject.Key.Name == "" || !exists {
				warn(reject.Err)
				side.Reject(resource.Key{}, "")
			} else if f.selects(reject.Key) {
				side.Reject(reject.Key, reject.Err.Error())
			}
		}
		for _, object := range content.Resources {
			if !f.selects(object.Key()) {
				continue
			}
			if _, err := resource.Validate(object); err != nil {
				side.Reject(object.Key(), err.Error())
				continue
			}
			side.Add(object)
		}
	}
	return side, nil
}

const stdinName = "stdin"

// contentsOf reads a path as the file source does, or standard input. If the source could not read all, it also returns
// the source's message.
func contentsOf(ctx context.Context, path string, stdin io.Reader) (
	contents []sources.Content, degraded string, err error,
) {
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
