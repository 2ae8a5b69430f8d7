package main

import (
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tributary/internal/words"
	"tributary/resource"
	"tributary/server/admin"
)

// completionTimeout is how long somebody waits who has pressed Tab.
const completionTimeout = 2 * time.Second

const noFiles = cobra.ShellCompDirectiveNoFileComp

// objects returns the objects of a kind that a server has; none if it cannot be asked.
func (f *clientFlags) objects(cmd *cobra.Command, kind string) []*resource.Resource {
	schema, ok := resource.SchemaByName(kind)
	if !ok {
		return nil
	}
	client := f.client(cmd)
	client.Timeout, client.Log = completionTimeout, slog.New(slog.DiscardHandler)
	answer, err := client.Get(cmd.Context(), schema)
	if err != nil {
		return nil
	}
	return answer.Resources
}

// completeObjects offers kinds and types first, and then names of objects.
func (f *clientFlags) completeObjects(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) == 0 {
		names, _ := completeType(cmd, args, typed)
		return append(names, cobra.CompletionWithDesc(allKinds, "all kinds")), noFiles
	}
	var names []cobra.Completion
	for _, r := range f.objects(cmd, args[0]) {
		name := r.Key().FullName()
		if f.selects(r) && !f.everywhere && !strings.Contains(typed, "/") {
			name = r.Key().Name
		}
		names = append(names, name)
	}
	return names, noFiles
}

// completeNamespaces offers those of the objects of the kind that was given, or of services.
func (f *clientFlags) completeNamespaces(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	kind := "serviceentry"
	if len(args) > 0 {
		kind = args[0]
	}
	var names []cobra.Completion
	for _, r := range f.objects(cmd, kind) {
		names = append(names, r.Key().Namespace)
	}
	slices.Sort(names)
	return slices.Compact(names), noFiles
}

// completeObjects offers kinds first, and then names of objects.
func (f *adminFlags) completeObjects(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) != 1 {
		return completeKind(cmd, args, typed)
	}
	f.timeout = completionTimeout
	var seen admin.Seen
	if _, err := f.client().Get(cmd.Context(), "/debug/seen", url.Values{"kind": args[:1]}, &seen); err != nil {
		return nil, noFiles
	}
	var names []cobra.Completion
	for name := range seen {
		names = append(names, name)
	}
	slices.Sort(names)
	return names, noFiles
}

// completeHolds offers the sources of which something is held.
func (f *adminFlags) completeHolds(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, noFiles
	}
	f.timeout = completionTimeout
	var st admin.Status
	if _, err := f.client().Get(cmd.Context(), "/debug/status", nil, &st); err != nil {
		return nil, noFiles
	}
	var names []cobra.Completion
	for _, s := range st.Sources {
		if s.Hold != nil {
			names = append(names, cobra.CompletionWithDesc(s.Name, "lost "+words.Count(s.Hold.Objects, "object", "objects")))
		}
	}
	return names, noFiles
}

// completeSources offers the sources.
func (f *adminFlags) completeSources(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	f.timeout = completionTimeout
	var st admin.Status
	if _, err := f.client().Get(cmd.Context(), "/debug/status", nil, &st); err != nil {
		return nil, noFiles
	}
	var names []cobra.Completion
	for _, s := range st.Sources {
		names = append(names, s.Name)
	}
	return names, noFiles
}
