package main

import (
	"log/slog"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tributary/internal/words"
	"tributary/resource"
	"tributary/server/admin"
)

// completionTimeout limits the wait after Tab.
const completionTimeout = 2 * time.Second

const noFiles = cobra.ShellCompDirectiveNoFileComp

// completeFlag makes a shell offer the values of a flag. The flag must exist.
func completeFlag(cmd *cobra.Command, flag string, f cobra.CompletionFunc) {
	_ = cmd.RegisterFlagCompletionFunc(flag, f)
}

func offeredKinds() []cobra.Completion {
	return words.Each(resource.Schemas(), func(s *resource.Schema) string {
		return cobra.CompletionWithDesc(s.Plural, string(s.Kind))
	})
}

func completeKind(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, noFiles
	}
	return offeredKinds(), noFiles
}

func completeType(_ *cobra.Command, args []string, _ string) (types []cobra.Completion, _ cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, noFiles
	}
	types = words.Each(envoyTypeNames(), func(name string) string { return cobra.CompletionWithDesc(name, "of Envoy") })
	return append(offeredKinds(), types...), noFiles
}

// objects returns the objects of a kind of a server; none if the server does not answer.
func (f *clientFlags) objects(command *cobra.Command, kind string) []*resource.Resource {
	schema, ok := resource.SchemaByName(kind)
	if !ok || findServer(command) != nil {
		return nil
	}
	server := f.client(command)
	server.Timeout, server.Log = completionTimeout, slog.New(slog.DiscardHandler)
	answer, err := server.Get(command.Context(), schema)
	if err != nil {
		return nil
	}
	return answer.Resources
}

// completeObjects offers kinds and types first, and then names of objects.
func (f *clientFlags) completeObjects(command *cobra.Command, args []string, typed string) ([]cobra.Completion,
	cobra.ShellCompDirective,
) {
	if kind, object, ok := strings.Cut(typed, "/"); ok && (len(args) == 0 || strings.Contains(args[0], "/")) {
		return words.Each(f.names(command, kind, object), func(name string) string { return kind + "/" + name }), noFiles
	}
	if len(args) == 0 {
		if before := strings.LastIndex(typed, ","); before >= 0 { // one more kind
			return words.Each(offeredKinds(), func(kind string) string { return typed[:before+1] + kind }), noFiles
		}
		names, _ := completeType(command, args, typed)
		return append(names, cobra.CompletionWithDesc(allKinds, "all kinds")), noFiles
	}
	return f.names(command, args[0], typed), noFiles
}

// names returns the names of the objects of kinds, in the form that a user types.
func (f *clientFlags) names(cmd *cobra.Command, kinds, typed string) (names []cobra.Completion) {
	for kind := range strings.SplitSeq(kinds, ",") {
		for _, r := range f.objects(cmd, kind) {
			name := r.Key().FullName()
			if f.selects(r) && !f.everywhere && !strings.Contains(typed, "/") {
				name = r.Key().Name
			}
			names = append(names, name)
		}
	}
	return names
}

// namespaces returns the namespaces of the objects of the given kind, or of services; full returns NAMESPACE/NAME of
// the objects of a kind.
func namespaces(args []string, full func(kind string) []string) (names []cobra.Completion, _ cobra.ShellCompDirective) {
	kinds := "serviceentry"
	if len(args) > 0 {
		kinds, _, _ = strings.Cut(args[0], "/")
	}
	if kinds == allKinds {
		kinds = "serviceentry,virtualservice,destinationrule" // the most frequent types: Tab waits for each request
	}
	for kind := range strings.SplitSeq(kinds, ",") {
		for _, name := range full(kind) {
			if namespace, _, ok := strings.Cut(name, "/"); ok {
				names = append(names, namespace)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names), noFiles
}

func (f *clientFlags) completeNamespaces(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion,
	cobra.ShellCompDirective,
) {
	return namespaces(args, func(kind string) []string { return f.names(cmd, kind, "/") })
}

func (f *adminFlags) completeNamespaces(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion,
	cobra.ShellCompDirective,
) {
	return namespaces(args, func(kind string) []string { return f.seen(cmd, kind) })
}

// seen returns the names of the objects of a kind, in order; none if the server does not answer.
func (f *adminFlags) seen(command *cobra.Command, kind string) []string {
	schema, ok := resource.SchemaByName(kind)
	if !ok {
		return nil
	}
	var seen admin.FirstSeen
	_, _ = f.completing(command).Get(command.Context(), "/debug/seen", url.Values{"kind": {string(schema.Kind)}}, &seen)
	return slices.Sorted(maps.Keys(seen))
}

// completeObjects offers kinds first, and then names of objects.
func (f *adminFlags) completeObjects(command *cobra.Command, args []string, typed string) ([]cobra.Completion,
	cobra.ShellCompDirective,
) {
	if kind, _, ok := strings.Cut(typed, "/"); ok && len(args) == 0 {
		return words.Each(f.seen(command, kind), func(name string) string { return kind + "/" + name }), noFiles
	}
	if len(args) != 1 {
		return completeKind(command, args, typed)
	}
	return f.seen(command, args[0]), noFiles
}

func (f *adminFlags) completeHolds(command *cobra.Command, args []string, _ string) (names []cobra.Completion,
	_ cobra.ShellCompDirective,
) {
	if len(args) > 0 {
		return nil, noFiles
	}
	for _, s := range f.sources(command) {
		if s.Hold != nil {
			names = append(names, cobra.CompletionWithDesc(s.Name, "lost "+words.Count(s.Hold.Objects, "object", "objects")))
		}
	}
	return names, noFiles
}

func (f *adminFlags) completeSources(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion,
	cobra.ShellCompDirective,
) {
	return words.Each(f.sources(cmd), func(s admin.SourceState) string { return s.Name }), noFiles
}

// sources returns the sources of the server; none if it does not answer.
func (f *adminFlags) sources(cmd *cobra.Command) []admin.SourceState {
	var st admin.Status
	_, _ = f.completing(cmd).Get(cmd.Context(), "/debug/status", nil, &st)
	return st.Sources
}
