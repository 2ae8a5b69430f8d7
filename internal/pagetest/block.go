package pagetest

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// Block is one console block of a page.
type Block struct {
	// page and anchor of the heading above, such as docs/verify.md#again; a second one of a heading has " 2" behind it
	ID    string
	Page  string // from the root of the repository
	Steps []Step
}

// Step is one command with what it prints.
type Step struct {
	Line    int // of the page, from 1
	Command string
	Prints  []string // nil if the page does not show it
}

// patterns are the pages that are for users.
var patterns = []string{"README.md", "docs/*.md", "docs/*/*.md", "sources/*/README.md"}

// Pages are those for users, from the root of the repository.
func Pages(root string) (pages []string, err error) {
	for _, pattern := range patterns {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			return nil, err
		}
		for _, page := range found {
			page, err := filepath.Rel(root, page)
			if err != nil {
				return nil, err
			}
			pages = append(pages, filepath.ToSlash(page))
		}
	}
	return pages, nil
}

// Blocks are all console blocks of the pages for users.
func Blocks(root string) (list []Block, err error) {
	pages, err := Pages(root)
	if err != nil {
		return nil, err
	}
	for _, page := range pages {
		text, err := os.ReadFile(filepath.Join(root, page)) //nolint:gosec // a page of ours
		if err != nil {
			return nil, err
		}
		blocks, err := parse(page, string(text))
		if err != nil {
			return nil, err
		}
		list = append(list, blocks...)
	}
	return list, nil
}

var (
	heading = regexp.MustCompile(`^#+ (.*)$`)
	fence   = regexp.MustCompile("^( *)```(\\S*)")
	here    = regexp.MustCompile(`<<-?\s*'?"?([A-Za-z_]+)`)
	mark    = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
	link    = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
)

// Anchor is what a heading is linked to by, as GitHub makes it.
func Anchor(heading string) string {
	return strings.ReplaceAll(mark.ReplaceAllString(strings.ToLower(link.ReplaceAllString(heading, "$1")), ""), " ", "-")
}

func parse(page, text string) (blocks []Block, err error) {
	lines := strings.Split(text, "\n")
	id, count := page, make(map[string]int)
	for i := 0; i < len(lines); i++ {
		if m := heading.FindStringSubmatch(lines[i]); m != nil {
			id = page + "#" + Anchor(m[1])
		}
		open := fence.FindStringSubmatch(lines[i])
		if open == nil {
			continue
		}
		if open[2] == "sh" || open[2] == "bash" || open[2] == "shell" {
			return nil, fmt.Errorf("%s:%d: write commands as a block of ```console, with $ before each, so that they are run",
				page, i+1)
		}
		block := Block{ID: id, Page: page}
		first := i + 1
		for i++; ; i++ {
			if i == len(lines) {
				return nil, fmt.Errorf("%s:%d: the block does not end", page, first)
			}
			if strings.TrimSpace(lines[i]) == "```" {
				break
			}
			if open[2] != "console" {
				continue
			}
			line := strings.TrimPrefix(lines[i], open[1])
			command, ok := strings.CutPrefix(line, "$ ")
			if !ok {
				if len(block.Steps) == 0 {
					return nil, fmt.Errorf("%s:%d: a block of ```console begins with a command behind $", page, i+1)
				}
				last := &block.Steps[len(block.Steps)-1]
				last.Prints = append(last.Prints, line)
				continue
			}
			step := Step{Line: i + 1, Command: command}
			for more(step.Command) && i+1 < len(lines) && strings.TrimSpace(lines[i+1]) != "```" {
				i++
				step.Command += "\n" + strings.TrimPrefix(lines[i], open[1])
			}
			block.Steps = append(block.Steps, step)
		}
		if open[2] != "console" {
			continue
		}
		if len(block.Steps) == 0 {
			return nil, fmt.Errorf("%s:%d: the block has no command", page, first)
		}
		if count[id]++; count[id] > 1 {
			block.ID = fmt.Sprintf("%s %d", id, count[id])
		}
		blocks = append(blocks, block)
	}
	return blocks, nil
}

// more reports whether a command goes on in the next line.
func more(command string) bool {
	if strings.HasSuffix(command, `\`) || strings.HasSuffix(command, "|") {
		return true
	}
	end := here.FindStringSubmatch(command)
	return end != nil && !strings.HasSuffix(command, "\n"+end[1])
}
