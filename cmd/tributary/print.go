package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/util/jsonpath"

	"tributary/cmd/internal/check"
	"tributary/cmd/internal/client"
	"tributary/cmd/internal/output"
	"tributary/internal/history"
	"tributary/resource"
)

type printing struct {
	format    string // table, wide, name, yaml or json
	noHeaders bool
	list      bool // there may be more than one
	version   func(resource.Key) string
	path      *jsonpath.JSONPath // of the format jsonpath
}

// sortByPath sorts objects by the field that an expression selects, numbers by their value; objects without it first.
func sortByPath(objects []*resource.Resource, expression string) error {
	path, err := parsePath(expression)
	if err != nil {
		return err
	}
	values := make(map[*resource.Resource]string, len(objects))
	for _, object := range objects {
		var text bytes.Buffer
		document, err := decodedJSON(object)
		if err == nil {
			err = path.Execute(&text, document)
		}
		if err != nil {
			return err
		}
		values[object] = text.String()
	}
	slices.SortStableFunc(objects, func(a, b *resource.Resource) int {
		numberA, errA := strconv.ParseFloat(values[a], 64)
		numberB, errB := strconv.ParseFloat(values[b], 64)
		if errA == nil && errB == nil {
			return cmp.Compare(numberA, numberB)
		}
		return strings.Compare(values[a], values[b])
	})
	return nil
}

func decodedJSON(r *resource.Resource) (document any, err error) {
	text, err := resource.MarshalJSON(r)
	if err == nil {
		err = json.Unmarshal(text, &document)
	}
	return document, err
}

// selectFields prints the fields that the path selects, of one object or of a list.
func (p *printing) selectFields(writer io.Writer, kinds []selection) error {
	items := []any{}
	for _, f := range kinds {
		for _, r := range f.objects {
			document, err := decodedJSON(r)
			if err != nil {
				return err
			}
			items = append(items, document)
		}
	}
	if !p.list && len(items) == 1 {
		return p.path.Execute(writer, items[0])
	}
	return p.path.Execute(writer, map[string]any{"apiVersion": "v1", "kind": "List", "items": items})
}

// print prints objects, one kind after the other.
func (p *printing) print(writer io.Writer, flags *clientFlags, selections []selection) error {
	if p.path != nil {
		return p.selectFields(writer, selections)
	}
	if p.format != "table" && p.format != "wide" {
		return p.documents(writer, selections)
	}
	var buffer bytes.Buffer
	options := output.TableOptions{
		Namespaces: flags.everywhere && p.list || ofSeveralNamespaces(selections), Kinds: len(selections) > 1,
		Wide: p.format == "wide", NoHeaders: p.noHeaders,
	}
	for _, selected := range selections {
		if len(selected.objects) == 0 {
			continue
		}
		if buffer.Len() > 0 && !p.noHeaders {
			buffer.WriteByte('\n')
		}
		if err := output.Table(&buffer, selected.schema.Kind, selected.objects, options, time.Now()); err != nil {
			return err
		}
	}
	text := buffer.String()
	if p.format != "wide" {
		text = output.ScreenOf(writer).Cut(text)
	}
	_, err := io.WriteString(writer, text)
	return err
}

func ofSeveralNamespaces(selections []selection) bool {
	namespaces := make(map[string]bool)
	for _, f := range selections {
		for _, r := range f.objects {
			if r.Key().Namespace != "" {
				namespaces[r.Key().Namespace] = true
			}
		}
	}
	return len(namespaces) > 1
}

// documents prints objects as documents, or as the names that get takes; as JSON in a list that kubectl apply takes.
func (p *printing) documents(writer io.Writer, selections []selection) error {
	var documents []document
	for _, selected := range selections {
		for _, object := range selected.objects {
			name := strings.TrimPrefix(object.Key().Namespace+"/"+object.Key().Name, "/")
			documents = append(documents, document{
				strings.ToLower(string(selected.schema.Kind)) + "/" + name,
				func(format string) ([]byte, error) {
					text, err := marshalled(object, format)
					if p.version != nil {
						text = check.WithVersion(text, p.version(object.Key()))
					}
					return text, err
				},
			})
		}
	}
	return printDocuments(writer, p.format, documents, !p.list && len(documents) == 1, func(items []json.RawMessage) any {
		return struct {
			APIVersion string            `json:"apiVersion"`
			Kind       string            `json:"kind"`
			Items      []json.RawMessage `json:"items"`
		}{"v1", "List", items}
	})
}

type document struct {
	name    string
	marshal func(format string) ([]byte, error)
}

// printDocuments prints objects as json, yaml or name. In JSON, a single object stands alone, and list wraps several.
func printDocuments(writer io.Writer, format string, documents []document, single bool,
	list func([]json.RawMessage) any,
) error {
	items, separator := []json.RawMessage{}, ""
	for _, printed := range documents {
		if format == "name" {
			if _, err := fmt.Fprintln(writer, printed.name); err != nil {
				return err
			}
			continue
		}
		text, err := printed.marshal(format)
		if err == nil && format == "yaml" {
			_, err = fmt.Fprintf(writer, "%s%s", separator, text)
		}
		if err != nil {
			return err
		}
		if separator = "---\n"; format == "json" {
			items = append(items, text)
		}
	}
	switch {
	case format != "json":
		return nil
	case single:
		return printJSON(writer, items[0])
	}
	return printJSON(writer, list(items))
}

func marshalled(object *resource.Resource, format string) ([]byte, error) {
	if format == "json" {
		return resource.MarshalJSON(object)
	}
	return resource.MarshalYAML(object)
}

// choice is a flag with a fixed set of values. It implements pflag.Value.
type choice struct {
	value   string
	allowed []string
	path    *jsonpath.JSONPath // of jsonpath=EXPRESSION, if that is allowed
}

const jsonPathFormat = "jsonpath=EXPRESSION"

// parsePath parses an expression as kubectl does.
func parsePath(expression string) (*jsonpath.JSONPath, error) {
	if !strings.Contains(expression, "{") {
		expression = "{." + strings.TrimPrefix(expression, ".") + "}"
	}
	path := jsonpath.New("output").AllowMissingKeys(true)
	return path, path.Parse(expression)
}

// outputs is the flag -o of a command; the first of its values is the default.
func outputs(allowed ...string) *choice { return &choice{value: allowed[0], allowed: allowed} }

func (c *choice) add(cmd *cobra.Command) {
	cmd.Flags().VarP(c, "output", "o", "format of the output: "+strings.Join(c.allowed, ", "))
	completeFlag(cmd, "output", cobra.FixedCompletions(c.allowed, cobra.ShellCompDirectiveNoFileComp))
}

func (c *choice) String() string { return c.value }
func (c *choice) Type() string   { return "format" }
func (c *choice) Set(value string) (err error) {
	if expression, ok := strings.CutPrefix(value, "jsonpath="); ok && slices.Contains(c.allowed, jsonPathFormat) {
		c.value, c.allowed = "jsonpath", append(c.allowed, "jsonpath")
		c.path, err = parsePath(expression)
		return err
	}
	if !slices.Contains(c.allowed, value) {
		return fmt.Errorf("want one of %s", strings.Join(c.allowed, ", "))
	}
	c.value = value
	return nil
}

// printJSON writes a value for people and programs alike.
func printJSON(w io.Writer, v any) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(v)
}

// moment is a flag with a time, as people write it. It implements pflag.Value.
type moment struct {
	time.Time
	text string
}

func (m *moment) String() string { return m.text }
func (m *moment) Type() string   { return "time" }

// Set takes a time, in UTC unless it names another zone, or a duration before now.
func (m *moment) Set(text string) error {
	now := time.Now().UTC()
	if ago, err := time.ParseDuration(strings.TrimPrefix(text, "-")); err == nil {
		*m = moment{now.Add(-ago), text}
		return nil
	}
	for _, form := range []string{
		time.RFC3339Nano, time.DateTime, "2006-01-02 15:04", "2006-01-02T15:04:05", "2006-01-02T15:04", time.DateOnly,
	} {
		for _, full := range []string{text, now.Format("2006-01-02 ") + text} { // a time without a date is today's
			if parsed, err := time.ParseInLocation(form, full, now.Location()); err == nil {
				*m = moment{parsed, text}
				return nil
			}
		}
	}
	return fmt.Errorf("want how long ago, such as 90s or 1h30m, or a time such as 15:04, 2006-01-02 15:04 or "+
		"2006-01-02T15:04:05Z, got %q",
		text)
}

// clocks bounds the difference between the clocks of two machines.
const clocks = 5 * time.Second

// past refuses a time in the future, which has no history.
func (m *moment) past(flag string) error {
	if m.After(time.Now().Add(clocks)) {
		return usage("%s %s is in the future", flag, m.text)
	}
	return nil
}

// query returns the parameter for the admin server.
func (m *moment) query() string { return m.UTC().Format(time.RFC3339Nano) }

// servedAt asks an admin server for the objects of a kind, or of all, that were served at a time. The texts name
// objects with an unknown state at that time.
func servedAt(
	ctx context.Context, server *client.Admin, moment *moment, kind resource.Kind,
) (objects []*resource.Resource, unknown []string, err error) {
	query := url.Values{"kind": {string(kind)}, "encoded": {"true"}}
	if !moment.IsZero() {
		query.Set("time", moment.query())
	}
	var state history.State
	if _, err := server.Get(ctx, "/debug/history/at", query, &state); err != nil {
		return nil, nil, err
	}
	for _, object := range state.Objects {
		objects = append(objects, object.Resource())
	}
	for _, name := range state.Unknown {
		unknown = append(unknown, name+": its state is unknown: it changed while no server was running")
	}
	return objects, unknown, nil
}
