# Completion of penstock for bash: commands, options and values, from penstock itself.
_penstock() {
    local IFS=$'\n'
    COMPREPLY=($(COMP_WORDS="${COMP_WORDS[*]}" COMP_CWORD=$COMP_CWORD \
        _PENSTOCK_COMPLETE=complete_bash "$1" 2>/dev/null))
}
complete -o bashdefault -o default -F _penstock penstock
