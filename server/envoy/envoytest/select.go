package envoytest

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Select returns the parts of documents that lines "# select: NAME [PATH...]" name, as YAML. A name is the type and the
// name of a resource (Cluster/outbound|80||a.example), where * stands for any text. Without paths, the whole resource is
// selected. A path has the names of fields, joined by dots, or {a,b} for several: it continues in each element of a list,
// in each value of a map after *, and after [NAME] in the elements of that name. A name that no document has is null in
// the answer.
func Select(documents map[string]json.RawMessage, lines string) (string, error) {
	answer := &yaml.Node{Kind: yaml.MappingNode}
	for line := range strings.Lines(lines) {
		selector, isSelector := strings.CutPrefix(line, "# select: ")
		if !isSelector {
			continue
		}
		words := strings.Fields(selector)
		found := false
		for _, name := range slices.Sorted(maps.Keys(documents)) {
			prefix, suffix, isPattern := strings.Cut(words[0], "*")
			if name != words[0] && (!isPattern || !strings.HasPrefix(name, prefix) || !strings.HasSuffix(name, suffix)) {
				continue
			}
			found = true
			var document yaml.Node
			if err := yaml.Unmarshal(documents[name], &document); err != nil {
				return "", fmt.Errorf("read %s: %w", name, err)
			}
			root := document.Content[0]
			if len(words) > 1 {
				root = prune(root, splitPaths(words[1:]))
			}
			answer.Content = append(answer.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: name}, root)
		}
		if !found {
			answer.Content = append(answer.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: words[0]},
				&yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Value: "null"})
		}
	}
	return encode(answer)
}

// encode writes maps and lists in one line if they are short.
func encode(node *yaml.Node) (string, error) {
	layOut(node, 0, 0)
	node.Style = 0
	var text strings.Builder
	encoder := yaml.NewEncoder(&text)
	encoder.SetIndent(2)
	if err := encoder.Encode(node); err != nil {
		return "", fmt.Errorf("write YAML: %w", err)
	}
	return text.String(), nil
}

// splitPaths expands braces, and splits paths at dots that are not between brackets.
func splitPaths(texts []string) (paths [][]string) {
	for i := 0; i < len(texts); i++ {
		text := texts[i]
		if before, rest, found := strings.Cut(text, "{"); found {
			names, after, _ := strings.Cut(rest, "}")
			for name := range strings.SplitSeq(names, ",") {
				texts = append(texts, before+name+after)
			}
			continue
		}
		inBrackets := false
		paths = append(paths, strings.FieldsFunc(strings.ReplaceAll(text, "[", ".["), func(r rune) bool {
			switch r {
			case '[':
				inBrackets = true
			case ']':
				inBrackets = false
			}
			return r == '.' && !inBrackets
		}))
	}
	return paths
}

// prune returns a copy with only what some path leads to, or nil.
func prune(node *yaml.Node, paths [][]string) *yaml.Node {
	for _, path := range paths {
		if len(path) == 0 {
			return node
		}
	}
	pruned := &yaml.Node{Kind: node.Kind, Tag: node.Tag}
	switch node.Kind {
	case yaml.SequenceNode:
		for _, element := range node.Content {
			if kept := prune(element, pathsOfElement(element, paths)); kept != nil {
				pruned.Content = append(pruned.Content, kept)
			}
		}
	case yaml.MappingNode:
		for i := 0; i < len(node.Content); i += 2 {
			var rest [][]string
			for _, path := range paths {
				if path[0] == node.Content[i].Value || path[0] == "*" {
					rest = append(rest, path[1:])
				}
			}
			if kept := prune(node.Content[i+1], rest); len(rest) > 0 && kept != nil {
				pruned.Content = append(pruned.Content, node.Content[i], kept)
			}
		}
	default:
		return nil
	}
	if node.Kind == yaml.MappingNode && len(paths) == 0 {
		return nil
	}
	return pruned
}

// pathsOfElement returns the paths that continue in an element of a list.
func pathsOfElement(element *yaml.Node, paths [][]string) (rest [][]string) {
	for _, path := range paths {
		name, named := strings.CutPrefix(path[0], "[")
		switch {
		case !named:
			rest = append(rest, path)
		case fieldOf(element, "name") == strings.TrimSuffix(name, "]"):
			rest = append(rest, path[1:])
		}
	}
	return rest
}

func fieldOf(node *yaml.Node, name string) string {
	for i := 0; i+1 < len(node.Content); i += 2 {
		if node.Kind == yaml.MappingNode && node.Content[i].Value == name {
			return node.Content[i+1].Value
		}
	}
	return ""
}

// lineWidth is the width up to which a map or list is written in one line.
const lineWidth = 140

// layOut writes maps and lists in one line if they are short, and returns the width of the line. A line would start at
// column start; the elements of a map or list with lines of its own stand at indent.
func layOut(node *yaml.Node, indent, start int) int {
	width := len(node.Value) + 2
	node.Style = 0
	for i, child := range node.Content {
		column := indent + 2
		if node.Kind == yaml.MappingNode && i%2 == 1 {
			column = indent + len(node.Content[i-1].Value) + 2
		}
		width += layOut(child, indent+2, column) + 2
	}
	if node.Kind != yaml.ScalarNode && start+width <= lineWidth {
		node.Style = yaml.FlowStyle
	}
	return width
}
